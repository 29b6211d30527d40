package txlock_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/wire"
)

// cancelledFarAway: a wait in a transaction that has more to lose is cancelled, while the pool has
// no connection open to interrupt it from, and the server is so far away that opening one takes a
// while.
func cancelledFarAway[Tx any](t *testing.T, e *engine, c client[Tx]) {
	holder := newFixture(t, e, c)
	held, err := holder.locks.Mutex(holder.key("held")).Lock(background)
	require.NoError(t, err)
	for _, guest := range []bool{false, true} {
		proxy, err := wire.Listen(e.address())
		require.NoError(t, err)
		t.Cleanup(func() { _ = proxy.Close() })
		f := newSizedFixture(t, e, c, poolSize, proxy.Addr())
		outer, err := f.locks.Mutex(f.key("outer")).Lock(background) // in the one connection that is open
		require.NoError(t, err)
		tx := f.guest(t)
		proxy.Delay(30 * time.Millisecond)
		from := outer.Context()
		if guest {
			from = background
		}
		waiting, cancel := context.WithCancel(from)
		failed := make(chan error, 1)
		go func() {
			m := f.locks.Mutex(holder.key("held"))
			if guest {
				failed <- m.LockTx(waiting, tx)
				return
			}
			_, err := m.Lock(waiting)
			failed <- err
		}()
		f.waiters(t, 1)
		cancel()
		err = receive(t, failed)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, txlock.ErrLost)
		require.NoError(t, f.locks.Mutex(f.key("guest")).LockTx(background, tx), "the transaction is usable")
		require.NoError(t, f.end(background, tx, true))
		require.NoError(t, outer.Context().Err(), context.Cause(outer.Context()))
		require.NoError(t, outer.Unlock(background))
		f.waiters(t, 0)
	}
	require.NoError(t, held.Unlock(background))
}

func limitFarAway[Tx any](t *testing.T, e *engine, c client[Tx]) {
	if onSQL, ok := any(c).(client[*sql.Tx]); ok { // where a caller can have the pool's only connection
		limitOfGuestFarAway(t, e, onSQL)
	}
}

// limitOfGuestFarAway: as in nestedWaitFarAway, the server ends the wait by itself, while its
// answer is under way the pool has no connection to interrupt it from.
func limitOfGuestFarAway(t *testing.T, e *engine, c client[*sql.Tx]) {
	proxy, err := wire.Listen(e.address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	f := newSizedFixture(t, e, c, 1, proxy.Addr())
	if f.pool.db == nil {
		return
	}
	holder := newFixture(t, e, c)
	held, err := holder.locks.Mutex(f.key("held")).Lock(background)
	require.NoError(t, err)
	f.free(t, f.key("own")) // reads the number of slots, for which the full pool has no connection
	tx, err := f.pool.db.BeginTx(background, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() }) // of a test that failed
	// Prepares the statements of the wait, too.
	require.NoError(t, f.locks.Mutex(f.key("own")).Within(time.Minute).LockTx(background, tx))
	proxy.Delay(100 * time.Millisecond)
	// Long enough for the trips in front of the wait.
	err = f.locks.Mutex(f.key("held")).Within(1200*time.Millisecond).LockTx(background, tx)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, txlock.ErrLost)
	proxy.Delay(0)
	holder.taken(t, f.key("own"))
	require.NoError(t, f.exec(background, tx, "SELECT 1"), "the transaction is usable")
	require.NoError(t, f.end(background, tx, true))
	holder.free(t, f.key("own"))
	require.NoError(t, held.Unlock(background))
}
