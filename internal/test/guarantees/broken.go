package guarantees

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/wire"
)

// KilledConnection shows that a connection killed in the middle is an error, from every verb.
func KilledConnection[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
	m := f.Locks.Mutex(f.Key("killed"))

	// Work that notices nothing.
	err := m.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		f.KillSession(t, tx)
		return nil
	})
	require.ErrorIs(t, err, txlock.ErrLost)
	// Work that notices, and returns its error.
	err = m.Do(background, func(ctx context.Context, tx Tx) error {
		f.KillSession(t, tx)
		return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (2)")
	})
	require.Error(t, err)
	// Work that notices, and swallows it.
	err = m.Do(background, func(ctx context.Context, tx Tx) error {
		f.KillSession(t, tx)
		_ = f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (3)")
		_ = f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (3)")
		return nil
	})
	require.ErrorIs(t, err, txlock.ErrLost)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))

	// A caller's transaction.
	tx := f.Guest(t)
	f.KillSession(t, tx)
	require.ErrorIs(t, m.LockTx(background, tx), txlock.ErrLost)
	_ = f.End(background, tx, false)

	// A nested Do, and the Do around it.
	err = m.Do(background, func(ctx context.Context, _ Tx) error {
		require.ErrorIs(t, m.Do(ctx, func(_ context.Context, tx Tx) error {
			f.KillSession(t, tx)
			return nil
		}), txlock.ErrLost)
		require.ErrorIs(t, context.Cause(ctx), txlock.ErrLost)
		return nil
	})
	require.ErrorIs(t, err, txlock.ErrLost)

	// A Lock is told so by its context, and by its Unlock.
	one := testbed.NewSizedFixture(t, e, c, 1, "")
	lock, err := one.Locks.Mutex(f.Key("killed")).Lock(background)
	require.NoError(t, err)
	nested, err := one.Locks.Mutex(f.Key("nested")).Lock(lock.Context())
	require.NoError(t, err)
	one.KillSessions(t)
	testbed.Receive(t, lock.Context().Done())
	require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
	next, err := m.Lock(background)
	require.NoError(t, err)
	require.ErrorIs(t, nested.Unlock(background), txlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	f.Taken(t, f.Key("killed"))
	require.NoError(t, next.Unlock(background))
}

// CutConnection shows that a connection cut by the network is an error, and bounded in time.
func CutConnection[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	proxy, err := wire.Listen(e.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, proxy.Addr())
	m := f.Locks.Mutex(f.Key("cut"))
	table := f.MakeTable(t, "id int primary key")

	lock, err := m.Lock(background)
	require.NoError(t, err)
	proxy.Cut()
	start := time.Now()
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrNotHeld)

	err = m.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		proxy.Cut()
		return nil
	})
	require.ErrorIs(t, err, txlock.ErrLost)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))

	// A waiter whose connection breaks gets an error and not the lock.
	holder := testbed.NewFixture(t, e, c)
	held, err := holder.Locks.Mutex(f.Key("cut")).Lock(background)
	require.NoError(t, err)
	failed := make(chan error, 1)
	go func() {
		_, err := m.Lock(background)
		failed <- err
	}()
	f.Waiters(t, 1)
	proxy.Cut()
	require.Error(t, <-failed)
	require.NoError(t, held.Unlock(background))
	require.Less(t, time.Since(start), 30*time.Second) // MySQL waits for 50 s by default

	// And everything works again.
	eventually.True(t, "the lock is free again", func() bool {
		lock, err := m.Lock(background)
		return err == nil && lock.Unlock(background) == nil
	})
}
