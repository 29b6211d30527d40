package testbed

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/wire"
)

// Lock is a lock that is granted, however long that takes.
func Lock[Tx any](t *testing.T, m *txlock.Mutex[Tx]) *txlock.Lock {
	t.Helper()
	return LockIn(t, background, m)
}

// LockIn is Lock with a context, such as that of another Lock.
func LockIn[Tx any](t *testing.T, ctx context.Context, m *txlock.Mutex[Tx]) *txlock.Lock {
	t.Helper()
	return must.Get(m.Lock(ctx))(t)
}

// TryLock is a lock that is granted without a wait.
func TryLock[Tx any](t *testing.T, m *txlock.Mutex[Tx]) *txlock.Lock {
	t.Helper()
	return TryLockIn(t, background, m)
}

// TryLockIn is TryLock with a context.
func TryLockIn[Tx any](t *testing.T, ctx context.Context, m *txlock.Mutex[Tx]) *txlock.Lock {
	t.Helper()
	return must.Get(m.TryLock(ctx))(t)
}

// Unlock releases locks, none of which is lost.
func Unlock(t *testing.T, locks ...*txlock.Lock) {
	t.Helper()
	for _, lock := range locks {
		require.NoError(t, lock.Unlock(background))
	}
}

// Keeps waits for a while, in which a lock must not be lost.
func Keeps(t *testing.T, lock *txlock.Lock, d time.Duration) {
	t.Helper()
	select {
	case <-lock.Context().Done():
		t.Fatal(context.Cause(lock.Context()))
	case <-time.After(d):
	}
}

// Misses fails the test unless somebody holds what m locks. It returns the error that says so.
func Misses[Tx any](t *testing.T, m *txlock.Mutex[Tx]) error {
	t.Helper()
	_, err := m.TryLock(background)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	return err
}

// Go calls in the background, and then tells what that has returned.
func Go(call func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	return ended
}

// LockLater locks and unlocks in the background, and then tells whether that succeeded.
func LockLater[Tx any](m *txlock.Mutex[Tx]) <-chan error {
	return Go(func() error { return Cycle(background, m) })
}

// Granted locks in the background, and hands out what it was granted.
func Granted[Tx any](t *testing.T, m *txlock.Mutex[Tx]) <-chan *txlock.Lock {
	granted := make(chan *txlock.Lock, 1)
	go func() {
		lock, err := m.Lock(background)
		if err != nil {
			t.Error(err)
			return
		}
		granted <- lock
	}()
	return granted
}

// Cycle locks and unlocks.
func Cycle[Tx any](ctx context.Context, m *txlock.Mutex[Tx]) error {
	lock, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return lock.Unlock(background)
}

// Proxy stands in front of an engine until the test ends.
func Proxy(t *testing.T, e *Engine) *wire.Proxy {
	t.Helper()
	proxy := must.Get(wire.Listen(e.Address()))(t)
	t.Cleanup(func() { _ = proxy.Close() })
	return proxy
}

// Proxied is NewSizedFixture behind a proxy of its own.
func Proxied[Tx any](t *testing.T, e *Engine, c Client[Tx], size int, options ...txlock.Option) (
	*Fixture[Tx], *wire.Proxy,
) {
	t.Helper()
	proxy := Proxy(t, e)
	return NewSizedFixture(t, e, c, size, proxy.Addr(), options...), proxy
}

// Another is a Locker on the fixture's lock table, with a pool of its own of at most size
// connections. Options may name another table.
func (f *Fixture[Tx]) Another(t *testing.T, size int, options ...txlock.Option) *txlock.Locker[Tx] {
	t.Helper()
	return f.AnotherBy(t, f.DSNFor(f.Label, "", nil), size, options...)
}

// AnotherBy is Another by a DSN.
func (f *Fixture[Tx]) AnotherBy(t *testing.T, dsn string, size int, options ...txlock.Option) *txlock.Locker[Tx] {
	t.Helper()
	return f.Locker(t, dsn, size, append([]txlock.Option{txlock.WithTable(f.Table())}, options...)...)
}

// Locker is one on a pool of its own, which ends with the test.
func (c Client[Tx]) Locker(t *testing.T, dsn string, size int, options ...txlock.Option) *txlock.Locker[Tx] {
	t.Helper()
	driver, p := c.Connect(t, dsn, size)
	locks := txlock.New(driver, options...)
	t.Cleanup(func() { require.NoError(t, locks.Close()); p.Close() })
	return locks
}

// ErrorIs requires that err is each of these errors.
func ErrorIs(t *testing.T, err error, all ...error) {
	t.Helper()
	for _, target := range all {
		require.ErrorIs(t, err, target)
	}
}

// ErrorOf is the error of a call whose value does not matter.
func ErrorOf[T any](_ T, err error) error { return err }

// Take takes a claim that is free.
func Take[Tx any](t *testing.T, claim *txlock.Claim[Tx], by string, d time.Duration) *txlock.Claimed[Tx] {
	t.Helper()
	return must.Get(claim.TryTake(background, by, d))(t)
}

// StateOf says who has a claim.
func StateOf[Tx any](t *testing.T, claim *txlock.Claim[Tx]) txlock.ClaimState {
	t.Helper()
	return must.Get(claim.State(background))(t)
}

// IsDone says whether the work of a Once is done.
func IsDone[Tx any](t *testing.T, once *txlock.Once[Tx]) bool {
	t.Helper()
	_, done, err := once.Done(background)
	require.NoError(t, err)
	return done
}
