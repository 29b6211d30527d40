package txlock

import (
	"context"

	"github.com/txlock/txlock/dialects"
)

// LockTx waits for the lock in a transaction that the caller began and will end. The lock is
// released when that transaction ends, and on PostgreSQL when it is rolled back to an earlier
// savepoint. A limit of the session's own ends the wait as well, with [ErrNotAcquired]:
// lock_timeout on PostgreSQL, innodb_lock_wait_timeout (50 s unless changed) on MySQL and MariaDB.
// When ctx ends while the lock is being granted, LockTx may return nil with the lock held.
//
// After an error the transaction is usable, and its settings are what they were. There are two
// exceptions, after which it must be rolled back: [ErrLost], also when a statement of the caller's
// has ended the transaction before (DDL on MySQL, COMMIT as text), and [ErrDeadlock] on MySQL and
// MariaDB. There, some keys of a failed call may also stay locked until the transaction ends.
//
// On PostgreSQL the transaction must be at READ COMMITTED, else [ErrIsolation]. The wait has a
// snapshot as long as it lasts; see docs/databases.md. On MySQL and MariaDB at REPEATABLE READ,
// their default, lock before the transaction's first plain SELECT: that one takes the snapshot that
// all later ones read.
func (m *Mutex[Tx]) LockTx(ctx context.Context, tx Tx) error {
	return m.lockTx(ctx, "LockTx", tx, false)
}

func (m *Mutex[Tx]) lockTx(ctx context.Context, verb string, tx Tx, try bool) error {
	ctx, trace := m.startTrace(ctx, verb, false)
	err := m.lockIn(ctx, verb, tx, try)
	trace.answer(err)
	return err
}

func (m *Mutex[Tx]) lockIn(ctx context.Context, verb string, tx Tx, try bool) error {
	wait, cancel, err := m.limitWait(ctx)
	if err != nil {
		return m.wrap(verb, err)
	}
	defer cancel()
	if _, one := m.target.(*permit[Tx]); one {
		return m.wrap(verb, errPermitTx)
	}
	err = m.retryOutdated(func() error {
		var request dialects.Request
		if request, err = m.request(wait, try, true); err == nil {
			err = m.locker.driver.LockTx(wait, tx, request)
		}
		return err
	})
	return m.wrap(verb, m.waitError(ctx, wait, err))
}
