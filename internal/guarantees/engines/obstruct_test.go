package engines

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/guarantees/testbed"
	"github.com/txlock/txlock/internal/servers"
)

// Locks that are held and awaited for long keep neither CREATE INDEX CONCURRENTLY nor VACUUM from
// their ends. The server is the test's own: on a shared one they would wait for other tests too.
func TestNothingWaitsForALock(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, shared *testbed.Engine) {
		if strings.HasPrefix(shared.Origin, "given") {
			return
		}
		e := testbed.Mortal(t, shared.Kind)
		pooler, err := servers.StartPgBouncer(background, e.Server)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
		t.Run("side by side", func(t *testing.T) {
			t.Run("postgres.Open", func(t *testing.T) { nothingWaits(t, e, testbed.PgxOpened()) })
			t.Run("sql.DB", func(t *testing.T) { nothingWaits(t, e, testbed.PostgresSQL[0]) })
			t.Run("PgBouncer", func(t *testing.T) { nothingWaits(t, e.Through(pooler), testbed.PgxOnPool("")) })
		})
	})
}

func nothingWaits[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	t.Parallel()
	// All connections wait or hold, so that none is left to look who waits for their snapshots.
	f := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithLease(shortLease), txlock.WithQueue(3))
	key := f.Key("long")
	held, err := f.Locks.Mutex(key, f.Key("other")).Lock(background)
	require.NoError(t, err)
	granted := make(chan error, 3)
	m := f.Locks.Mutex(key)
	go func() {
		lock, err := m.Lock(background)
		if err == nil {
			err = lock.Unlock(background)
		}
		granted <- err
	}()
	go func() { granted <- m.Do(background, func(context.Context, Tx) error { return nil }) }()
	go func() {
		outer, err := f.Locks.Mutex(f.Key("outer")).Lock(background)
		if err == nil {
			var lock *txlock.Lock
			if lock, err = m.Lock(outer.Context()); err == nil {
				err = lock.Unlock(background)
			}
			err = errors.Join(err, outer.Unlock(background))
		}
		granted <- err
	}()
	f.Waiters(t, 3)

	// An index that is made concurrently waits for all snapshots that are older than its own.
	table := f.MakeTable(t, "id int")
	f.AsAdmin(t, "INSERT INTO "+table+" SELECT generate_series(1, 10000)")
	begun := time.Now()
	f.AsAdmin(t, "CREATE INDEX CONCURRENTLY ON "+table+" (id)")
	took := time.Since(begun)
	require.Less(t, took, 15*time.Second)
	require.NoError(t, held.Context().Err())
	select {
	case err := <-granted:
		require.NoError(t, err, "a wait ended")
	default:
	}
	f.Waiters(t, 3)

	// VACUUM gives the table's pages back when it may remove all of its rows.
	f.AsAdmin(t, "DELETE FROM "+table)
	begun = time.Now()
	for f.AsAdmin(t, "VACUUM "+table); f.Total(t, "SELECT pg_relation_size('"+table+"')") > 0; {
		require.Less(t, time.Since(begun), 20*shortLease, "the rows cannot be removed")
		<-time.After(100 * time.Millisecond)
		f.AsAdmin(t, "VACUUM "+table)
	}
	t.Logf("CREATE INDEX CONCURRENTLY took %v, VACUUM could remove the rows after %v", took, time.Since(begun))
	require.NoError(t, held.Context().Err())
	require.Empty(t, granted)
	require.NoError(t, held.Unlock(background))
	for range 3 {
		require.NoError(t, testbed.Receive(t, granted))
	}
}
