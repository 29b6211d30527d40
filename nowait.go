package txlock

import "context"

// TryLock is Lock without waiting for other holders: it waits for a free connection of the pool
// only, as long as ctx and Within allow. Waiters are never overtaken. Of several tries of one key
// at the same moment, one gets it; of several keys, all may miss.
func (m *Mutex[Tx]) TryLock(ctx context.Context) (*Lock, error) {
	return m.lock(ctx, "TryLock", true)
}

// TryDo is Do without waiting, as TryLock says.
func (m *Mutex[Tx]) TryDo(ctx context.Context, work func(ctx context.Context, tx Tx) error) error {
	return m.do(ctx, "TryDo", true, work)
}

// TryExec is Exec without waiting, as TryLock says.
func (m *Mutex[Tx]) TryExec(ctx context.Context, statements ...Statement) (affected []int64, err error) {
	return m.exec(ctx, "TryExec", true, statements)
}

// TryLockTx is LockTx without waiting. A miss leaves the transaction usable.
func (m *Mutex[Tx]) TryLockTx(ctx context.Context, tx Tx) error {
	return m.lockTx(ctx, "TryLockTx", tx, true)
}
