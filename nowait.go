package txlock

import "context"

// TryLock is Lock without waiting: a lock that another session holds, or waits for, is
// [ErrNotAcquired] at once. Waiters are never overtaken. TryLock waits for a free connection of the
// pool only, as long as ctx and Within allow.
//
// A try also misses when the lock is that of another key with the same slot: see Slots collide. Of
// several tries of one key at the same moment, one gets it. Tries that name several keys may all
// miss: each finds some of them taken by the others.
func (m *Mutex[Tx]) TryLock(ctx context.Context) (*Lock, error) {
	return m.lock(ctx, "TryLock", true)
}

// TryDo is Do without waiting: when another session holds the lock, or waits for it, work does not
// run and the error is [ErrNotAcquired].
func (m *Mutex[Tx]) TryDo(ctx context.Context, work func(ctx context.Context, tx Tx) error) error {
	return m.do(ctx, "TryDo", true, work)
}

// TryExec is Exec without waiting: when another session holds the lock, or waits for it, no
// statement runs and the error is [ErrNotAcquired].
func (m *Mutex[Tx]) TryExec(ctx context.Context, statements ...Statement) (affected []int64, err error) {
	return m.exec(ctx, "TryExec", true, statements)
}

// TryLockTx is LockTx without waiting: a lock that another session holds, or waits for, is
// [ErrNotAcquired] at once, and the transaction stays usable.
func (m *Mutex[Tx]) TryLockTx(ctx context.Context, tx Tx) error {
	return m.lockTx(ctx, "TryLockTx", tx, true)
}
