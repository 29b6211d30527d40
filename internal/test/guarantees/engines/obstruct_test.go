package engines

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// Locks that are held and awaited for long, and elections, keep neither CREATE INDEX CONCURRENTLY
// nor VACUUM from their ends. The server is the test's own: on a shared one they would wait for
// other tests too.
func TestNothingWaitsForALock(t *testing.T) {
	eachPostgres(t, func(t *testing.T, shared *testbed.Engine) {
		if shared.Given() {
			return
		}
		e := testbed.Own(t, shared.Kind)
		pooled := e.BehindPgBouncer(t)
		idleHolder(t, e, testbed.PgxOpened())
		idleHolder(t, e, testbed.PostgresSQL[0])
		idleHolder(t, pooled, testbed.PgxOnPool(""))
		t.Run("side by side", func(t *testing.T) {
			t.Run("postgres.Open", func(t *testing.T) { nothingWaits(t, e, testbed.PgxOpened()) })
			t.Run("sql.DB", func(t *testing.T) { nothingWaits(t, e, testbed.PostgresSQL[0]) })
			t.Run("PgBouncer", func(t *testing.T) { nothingWaits(t, pooled, testbed.PgxOnPool("")) })
			keyless, _ := e.Keyless(t, 30)
			t.Run("no cancels", func(t *testing.T) { nothingWaits(t, keyless, testbed.PgxOpened()) })
			t.Run("no cancels, sql.DB", func(t *testing.T) { nothingWaits(t, keyless, testbed.PostgresSQL[0]) })
		})
	})
}

// An index is made concurrently in the moment of the grant. Its wait for a snapshot, once begun,
// would last until the holder's transaction ends.
func idleHolder[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	t.Helper()
	f := testbed.NewFixture(t, e, c)
	table, key := f.MakeTable(t, "id int"), f.Key("a")
	for name, m := range map[string]*txlock.Mutex[Tx]{
		"one key": f.Locks.Mutex(key), "two keys": f.Locks.Mutex(key, f.Key("b")),
		"with a limit": f.Locks.Mutex(key).Within(time.Minute), "nested": f.Locks.Mutex(f.Key("b")),
	} {
		locks := []*txlock.Lock{testbed.Lock(t, m)}
		if name == "nested" {
			nested := testbed.LockIn(t, locks[0].Context(), f.Locks.Mutex(key))
			locks = append(locks, nested)
		}
		ctx, cancel := context.WithTimeout(background, 30*time.Second)
		_, err := e.Admin.ExecContext(ctx, "CREATE INDEX CONCURRENTLY ON "+table+" (id)")
		cancel()
		require.NoError(t, err, "%s, %s", c.Name, name)
		testbed.Unlock(t, locks...)
	}
}

func nothingWaits[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	t.Parallel()
	f := testbed.NewSizedFixture(t, e, c, 5, "", txlock.WithLease(shortLease), txlock.WithQueue(3))
	key := f.Key("long")
	held := testbed.Lock(t, f.Locks.Mutex(key, f.Key("other")))
	api := f.Key("api")
	permit := testbed.Lock(t, f.Locks.Semaphore(api, 1))
	granted := make(chan error, 5)
	lockLater := func(m *txlock.Mutex[Tx]) { granted <- testbed.Cycle(background, m) }
	m := f.Locks.Mutex(key)
	go lockLater(m)
	go func() { granted <- m.Do(background, idle[Tx]) }()
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
	require.NoError(t, testbed.ErrorOf(e.Admin.ExecContext(ctx, "CREATE INDEX CONCURRENTLY ON "+table+" (id)")))
	took := time.Since(begun)
	must.Get(e.Admin.ExecContext(ctx, "VACUUM (FREEZE) "+f.Table()))(t) // who waits for a slot has not its page
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
	testbed.Unlock(t, permit, held)
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

// A lock that is held, and one that is awaited, keep nobody waiting who changes another table. On
// MySQL they do not hold back purge either. On MariaDB they do, as every transaction does that may
// write: the documents say so, and this test sees it when a version stops doing that.
func TestInNobodysWay(t *testing.T) {
	eachOwnMySQL(t, func(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) { // nobody else holds back purge
		e.AsAdmin(t, "SET GLOBAL innodb_monitor_enable = 'trx_rseg_history_len'")
		// Else the count is that of up to 128 rounds of purge before.
		e.AsAdmin(t, "SET GLOBAL innodb_purge_rseg_truncate_frequency = 1")
		f, _ := testbed.NewInstalled(t, e, c, txlock.WithFencing(), txlock.WithSlots(64))
		table := f.MakeTable(t, "id int primary key, n int")
		purged(t, f.Engine, "before")
		lock := testbed.Lock(t, f.Locks.Mutex("a"))
		granted := f.Queue(t, 1, "a")

		changes(t, e, table)
		if e.Kind == servers.MariaDB {
			require.GreaterOrEqual(t, history(t, e), updates)
		} else {
			purged(t, e, "under a holder and a waiter")
		}
		testbed.Unlock(t, lock)
		require.NoError(t, testbed.Receive(t, granted).Unlock(background))
		purged(t, e, "after the locks")
	})
}

// updates is how many transactions leave a row version behind.
const updates = 2000

// changes are a migration of a table and many updates of its rows, each in a transaction.
func changes(t *testing.T, e *testbed.Engine, table string) {
	t.Helper()
	conn := must.Get(e.Admin.Conn(background))(t)
	defer conn.Close()
	migration := []string{
		"SET lock_wait_timeout = 10, innodb_lock_wait_timeout = 10", "INSERT INTO " + table + " VALUES (1, 0)",
		"ALTER TABLE " + table + " ADD COLUMN more int, ALGORITHM = COPY", "CREATE INDEX by_n ON " + table + " (n)",
	}
	for i := range updates {
		migration = append(migration, fmt.Sprintf("UPDATE %s SET n = %d", table, i+1))
	}
	migration = append(migration, "SET lock_wait_timeout = DEFAULT, innodb_lock_wait_timeout = DEFAULT")
	for _, statement := range migration {
		database.Exec(t, conn, statement)
	}
}

// history is how many transactions have left row versions that are not purged.
func history(t *testing.T, e *testbed.Engine) (n int) {
	t.Helper()
	const query = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'"
	require.NoError(t, e.Admin.QueryRow(query).Scan(&n))
	return n
}

// purged waits until most of the history is gone.
func purged(t *testing.T, e *testbed.Engine, when string) {
	t.Helper()
	began := time.Now()
	eventually.True(t, "purge "+when, func() bool { return history(t, e) < updates/2 })
	t.Logf("%s: history %d after %v", when, history(t, e), time.Since(began).Round(time.Millisecond))
}
