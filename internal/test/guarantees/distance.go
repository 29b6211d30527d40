package guarantees

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/wire"
)

// CancelledFarAway cancels a wait in a transaction that holds other locks. The pool has no second
// connection open for the interrupt, and the server is so far away that opening one takes a while.
func CancelledFarAway[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	holder := testbed.NewFixture(t, e, c)
	held, err := holder.Locks.Mutex(holder.Key("held")).Lock(background)
	require.NoError(t, err)
	for _, guest := range []bool{false, true} {
		proxy, err := wire.Listen(e.Address())
		require.NoError(t, err)
		t.Cleanup(func() { _ = proxy.Close() })
		f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, proxy.Addr())
		outer, err := f.Locks.Mutex(f.Key("outer")).Lock(background) // in the one connection that is open
		require.NoError(t, err)
		tx := f.Guest(t)
		proxy.Delay(30 * time.Millisecond)
		from := outer.Context()
		if guest {
			from = background
		}
		waiting, cancel := context.WithCancel(from)
		failed := make(chan error, 1)
		go func() {
			m := f.Locks.Mutex(holder.Key("held"))
			if guest {
				failed <- m.LockTx(waiting, tx)
				return
			}
			_, err := m.Lock(waiting)
			failed <- err
		}()
		f.Waiters(t, 1)
		cancel()
		err = testbed.Receive(t, failed)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, txlock.ErrLost)
		require.NoError(t, f.Locks.Mutex(f.Key("guest")).LockTx(background, tx), "the transaction is usable")
		require.NoError(t, f.End(background, tx, true))
		require.NoError(t, outer.Context().Err(), context.Cause(outer.Context()))
		require.NoError(t, outer.Unlock(background))
		f.Waiters(t, 0)
	}
	require.NoError(t, held.Unlock(background))
}

// LimitFarAway shows that a limit on a wait costs no transaction, however far away the server
// is.
func LimitFarAway[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	if onSQL, ok := any(c).(testbed.Client[*sql.Tx]); ok { // where a caller can have the pool's only connection
		limitOfGuestFarAway(t, e, onSQL)
	}
}

// limitOfGuestFarAway is NestedWaitFarAway in a caller's transaction: the server ends the wait by
// itself, and while its answer is on the way, the pool has no connection for an interrupt.
func limitOfGuestFarAway(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
	proxy, err := wire.Listen(e.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	f := testbed.NewSizedFixture(t, e, c, 1, proxy.Addr())
	if f.Pool.DB == nil {
		return
	}
	holder := testbed.NewFixture(t, e, c)
	held, err := holder.Locks.Mutex(f.Key("held")).Lock(background)
	require.NoError(t, err)
	f.Free(t, f.Key("own")) // reads the number of slots, for which the full pool has no connection
	tx, err := f.Pool.DB.BeginTx(background, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() }) // of a test that failed
	// Prepares the statements of the wait, too.
	require.NoError(t, f.Locks.Mutex(f.Key("own")).Within(time.Minute).LockTx(background, tx))
	proxy.Delay(100 * time.Millisecond)
	// Long enough for the trips before the wait.
	err = f.Locks.Mutex(f.Key("held")).Within(1200*time.Millisecond).LockTx(background, tx)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, txlock.ErrLost)
	proxy.Delay(0)
	holder.Taken(t, f.Key("own"))
	require.NoError(t, f.Exec(background, tx, "SELECT 1"), "the transaction is usable")
	require.NoError(t, f.End(background, tx, true))
	holder.Free(t, f.Key("own"))
	require.NoError(t, held.Unlock(background))
}
