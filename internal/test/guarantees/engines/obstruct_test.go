package engines

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// Locks that are held and awaited for long, and elections, keep neither CREATE INDEX CONCURRENTLY
// nor VACUUM from their ends. The server is the test's own: on a shared one they would wait for
// other tests too.
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
		idleHolder(t, e, testbed.PgxOpened())
		idleHolder(t, e, testbed.PostgresSQL[0])
		idleHolder(t, e.Through(pooler), testbed.PgxOnPool(""))
		t.Run("side by side", func(t *testing.T) {
			t.Run("postgres.Open", func(t *testing.T) { nothingWaits(t, e, testbed.PgxOpened()) })
			t.Run("sql.DB", func(t *testing.T) { nothingWaits(t, e, testbed.PostgresSQL[0]) })
			t.Run("PgBouncer", func(t *testing.T) { nothingWaits(t, e.Through(pooler), testbed.PgxOnPool("")) })
			keyless, _ := e.Keyless(t, 30)
			t.Run("no cancels", func(t *testing.T) { nothingWaits(t, keyless, testbed.PgxOpened()) })
			t.Run("no cancels, sql.DB", func(t *testing.T) { nothingWaits(t, keyless, testbed.PostgresSQL[0]) })
		})
	})
}

// An index is made concurrently in the moment of the grant. Its wait for a snapshot, once begun,
// would last until the holder's transaction ends.
func idleHolder[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int")
	for name, m := range map[string]*txlock.Mutex[Tx]{
		"one key": f.Locks.Mutex(f.Key("a")), "two keys": f.Locks.Mutex(f.Key("a"), f.Key("b")),
		"with a limit": f.Locks.Mutex(f.Key("a")).Within(time.Minute), "nested": f.Locks.Mutex(f.Key("b")),
	} {
		lock, err := m.Lock(background)
		require.NoError(t, err)
		handles := []*txlock.Lock{lock}
		if name == "nested" {
			nested, err := f.Locks.Mutex(f.Key("a")).Lock(lock.Context())
			require.NoError(t, err)
			handles = append(handles, nested)
		}
		ctx, cancel := context.WithTimeout(background, 30*time.Second)
		_, err = e.Admin.ExecContext(ctx, "CREATE INDEX CONCURRENTLY ON "+table+" (id)")
		cancel()
		require.NoError(t, err, "%s, %s", c.Name, name)
		for _, handle := range handles {
			require.NoError(t, handle.Unlock(background))
		}
	}
}

func nothingWaits[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	t.Parallel()
	f := testbed.NewSizedFixture(t, e, c, 5, "", txlock.WithLease(shortLease), txlock.WithQueue(3))
	key := f.Key("long")
	held, err := f.Locks.Mutex(key, f.Key("other")).Lock(background)
	require.NoError(t, err)
	api := f.Key("api")
	permit, err := f.Locks.Semaphore(api, 1).Lock(background)
	require.NoError(t, err)
	granted := make(chan error, 5)
	lockLater := func(m *txlock.Mutex[Tx]) {
		lock, err := m.Lock(background)
		if err == nil {
			err = lock.Unlock(background)
		}
		granted <- err
	}
	m := f.Locks.Mutex(key)
	go lockLater(m)
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
	kinds := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithLease(shortLease))
	go lockLater(kinds.Locks.Semaphore(api, 1))
	go lockLater(kinds.Locks.Mutex(key).Shared())
	eventually.Every(t, "a wait for a permit, and one to share", testbed.PollEvery, func() bool {
		return f.Total(t, "SELECT COUNT(*) FROM pg_stat_activity WHERE xact_start IS NOT NULL AND "+
			"split_part(application_name, '#', 1) = '"+kinds.Label+"'") == 2
	})
	resign := leaderWithCandidate(t, e, c)

	// An index that is made concurrently waits for all snapshots that are older than its own.
	table := f.MakeTable(t, "id int")
	f.AsAdmin(t, "INSERT INTO "+table+" SELECT generate_series(1, 10000)")
	begun := time.Now()
	ctx, cancel := context.WithTimeout(background, 20*shortLease)
	defer cancel()
	_, err = e.Admin.ExecContext(ctx, "CREATE INDEX CONCURRENTLY ON "+table+" (id)")
	require.NoError(t, err)
	took := time.Since(begun)
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
	resign()
	require.NoError(t, permit.Unlock(background))
	require.NoError(t, held.Unlock(background))
	for range 5 {
		require.NoError(t, testbed.Receive(t, granted))
	}
}

// leaderWithCandidate has one process lead, and another wait to do so, until resign is called. It
// fails if the leadership has changed by then.
func leaderWithCandidate[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) (resign func()) {
	ctx, cancel := context.WithCancel(background)
	leading, over := make(chan struct{}, 2), make(chan error, 2)
	var name string
	for i := range 2 {
		f := testbed.NewSizedFixture(t, e, c, 2, "", txlock.WithLease(shortLease))
		if i == 0 {
			name = f.Key("election")
		}
		go func() {
			over <- f.Locks.Election(name, "me").Lead(ctx, func(ctx context.Context, _ int64) error {
				leading <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		if i == 0 {
			testbed.Receive(t, leading)
		} else {
			f.Waiters(t, 1)
		}
	}
	t.Cleanup(cancel) // before the fixtures close
	return func() {
		require.Empty(t, leading)
		require.Empty(t, over)
		cancel()
		for range 2 {
			require.ErrorIs(t, testbed.Receive(t, over), context.Canceled)
		}
	}
}
