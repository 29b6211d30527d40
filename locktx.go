package txlock

import (
	"context"

	"github.com/txlock/txlock/dialects"
)

// LockTx waits for the lock in a transaction that the caller began and will end. The lock is
// released with that, and on PostgreSQL when it is rolled back to an earlier savepoint. A limit of
// the session's own (lock_timeout, innodb_lock_wait_timeout) ends the wait as well, with
// [ErrNotAcquired]. When ctx ends while the lock is being granted, LockTx may return nil. After an
// error the transaction is usable and has its settings, but after [ErrLost], and [ErrDeadlock] on
// MySQL and MariaDB; there, some keys of a failed call may stay locked. On PostgreSQL it must be at
// READ COMMITTED, else [ErrIsolation]. On MySQL and MariaDB at REPEATABLE READ, lock before the
// first plain SELECT, whose snapshot stays.
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
	if m.permit != nil {
		return m.wrap(verb, errPermitTx)
	}
	request, err := m.request(wait, try, true)
	if err == nil {
		err = m.locker.driver.LockTx(wait, tx, request)
	}
	if err == nil && m.attached != nil {
		var answer []string
		if answer, err = m.locker.driver.Run(wait, m.attached.look, tx); err == nil {
			return m.attached.judge(answer)
		}
	}
	m.locker.invalidate(err)
	return m.wrap(verb, m.waitError(ctx, wait, err))
}

// asking returns a copy with a query of a kind behind its lock, for a Do or a LockTx. Connected
// says that the caller has a connection.
func (m *Mutex[Tx]) asking(ctx context.Context, connected bool, query func(dialects.Kinds) dialects.Query,
	judge func(answer []string) error,
) (*Mutex[Tx], error) {
	asking := *m
	if err := m.ready(); err != nil {
		return m, err
	}
	found, err := m.locker.find(ctx, connected || m.locker.carriesOpen(ctx))
	if err == nil {
		asking.attached = &attached{look: query(found.Kinds), judge: judge}
	}
	return &asking, err
}
