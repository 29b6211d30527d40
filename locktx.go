package txlock

import "context"

// LockTx waits for the lock in a transaction that the caller began and will end, and the lock with
// it, on PostgreSQL also by a rollback to an earlier savepoint. A limit of the session's own
// (lock_timeout, innodb_lock_wait_timeout) ends the wait as well. When ctx ends while the lock is
// being granted, LockTx may return nil. After an error the transaction is usable and has its
// settings, but after [ErrLost], and [ErrDeadlock] on MySQL and MariaDB, where some keys of a
// failed call may stay locked. On PostgreSQL it must be at READ COMMITTED, else [ErrIsolation]. On
// MySQL and MariaDB at REPEATABLE READ, lock before the first plain SELECT, whose snapshot stays.
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
	request, err := m.request(wait, try, true, &anyWork)
	if err == nil {
		request.Work, request.Lease = nil, 0
		err = m.locker.driver.LockTx(wait, tx, request)
	}
	if err != nil || m.attached == nil {
		return m.wrap(verb, m.waitError(wait, err))
	}
	found, err := m.locker.find(wait, true)
	var answer []string
	if err == nil {
		answer, err = m.locker.driver.Run(wait, m.attached.look(found.Kinds), tx)
	}
	if err != nil {
		return m.wrap(verb, m.waitError(wait, err))
	}
	return m.attached.judge(answer)
}
