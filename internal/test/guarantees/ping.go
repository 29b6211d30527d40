package guarantees

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// Pinged shows that Ping finds a lock table that is missing or empty, waits for no lock, and leaves
// no transaction open.
func Pinged[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, name := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(4))
	require.ErrorIs(t, f.Locks.Ping(background), txlock.ErrNotInstalled)
	require.NoError(t, f.Locks.Install(background))
	require.NoError(t, f.Locks.Ping(background))
	lock := testbed.Lock(t, f.Locks.Mutex(keysOfSlots(4, 0, 1, 2, 3)...))
	require.NoError(t, f.Locks.Ping(background))
	testbed.Unlock(t, lock)
	driver, p := c.Connect(t, e.DSNFor(f.Label, "", nil), 1)
	defer p.Close()
	guest, keepOut := f.Guest(t), "LOCK TABLES "+name+" WRITE"
	if e.Postgres {
		keepOut = "LOCK TABLE " + name + " IN ACCESS EXCLUSIVE MODE"
	}
	require.NoError(t, f.Exec(background, guest, keepOut))
	fresh := txlock.New(driver, txlock.WithTable(name))
	for what, call := range map[string]func(context.Context) error{
		"Ping": f.Locks.Ping,
		"Lock": func(ctx context.Context) error {
			_, err := fresh.Mutex("a").Lock(ctx)
			return err
		},
	} {
		ctx, cancel := context.WithCancelCause(background)
		time.AfterFunc(100*time.Millisecond, func() { cancel(txlock.ErrLost) })
		err := call(ctx)
		require.ErrorIs(t, err, context.Canceled, what)
		require.NotErrorIs(t, err, txlock.ErrLost, "%s: that is another's", what)
	}
	if !e.Postgres {
		require.NoError(t, f.Exec(background, guest, "UNLOCK TABLES"))
	}
	require.NoError(t, f.End(background, guest, false))
	f.AsAdmin(t, "DELETE FROM "+name)
	require.ErrorIs(t, f.Locks.Ping(background), txlock.ErrNotInstalled)
	f.Transactions(t, 0)
	f.DropInstalled(t, name)
	require.ErrorIs(t, f.Locks.Ping(background), txlock.ErrNotInstalled)

	ctx, cancel := context.WithCancel(background)
	cancel()
	require.ErrorIs(t, f.Locks.Ping(ctx), context.Canceled)
	closed := txlock.New(driver, txlock.WithLease(time.Minute))
	require.NoError(t, closed.Close())
	require.ErrorContains(t, closed.Ping(background), "closed")
}
