package engines

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// A shared lock of keys writes nothing on PostgreSQL: no log, no multixact, not the number of a
// transaction. While it is held it holds back nobody. The server is the test's own: others would
// write.
func TestSharedWritesNothing(t *testing.T) {
	eachPostgres(t, func(t *testing.T, given *testbed.Engine) {
		e := testbed.Own(t, given.Kind)
		t.Run("pgx", func(t *testing.T) { sharedWritesNothing(t, e, testbed.PgxOpened()) })
		t.Run("sql.DB", func(t *testing.T) { sharedWritesNothing(t, e, testbed.PostgresSQL[0]) })
	})
}

func sharedWritesNothing[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	var keys []string
	for i := range 20 {
		keys = append(keys, f.Key(fmt.Sprint("k", i)))
	}
	one, several := f.Locks.Mutex(keys[0]).Shared(), f.Locks.Mutex(keys...).Shared()
	guest := f.Guest(t)
	use := func() {
		for _, m := range []*txlock.Mutex[Tx]{one, several} {
			lock := testbed.Lock(t, m)
			tried := testbed.TryLock(t, m)
			require.NoError(t, m.Do(background, idle[Tx]))
			require.NoError(t, m.LockTx(background, guest))
			require.NoError(t, f.Exec(background, guest, "ROLLBACK AND CHAIN"))
			testbed.Unlock(t, tried, lock)
		}
	}
	use() // connects and prepares
	var before, after string
	eventually.Every(t, "a moment in which the server itself writes nothing", testbed.PollEvery, func() bool {
		const written = "SELECT concat_ws(' ', pg_current_wal_insert_lsn(), mxid_age('1'::xid), " +
			"pg_snapshot_xmax(pg_current_snapshot()))"
		require.NoError(t, e.Admin.QueryRow(written).Scan(&before))
		use()
		require.NoError(t, e.Admin.QueryRow(written).Scan(&after))
		return before == after
	})

	require.NoError(t, f.End(background, guest, false))
	lock := testbed.Lock(t, several)
	h := f.Look(t, keys[0])[0]
	require.Len(t, h.Readers, 1)
	require.Equal(t, horizon{}, horizonOf(t, f, h.Readers[0].ID))
	testbed.Unlock(t, lock)
}

// Two spellings of the lock table are one lock.
func TestSharedTableIsSpelledInTwoWays(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f, table := testbed.NewInstalled(t, e, testbed.PgxOpened(), txlock.WithSlots(64))
		other := f.Another(t, 4, txlock.WithTable(`public."`+table+`"`))
		lock := testbed.Lock(t, f.Locks.Mutex("k").Shared())
		testbed.Misses(t, other.Mutex("k"))
		second := testbed.TryLock(t, other.Mutex("k").Shared())
		testbed.Unlock(t, lock)
		testbed.Misses(t, f.Locks.Mutex("k"))
		testbed.Unlock(t, second)
		f.Free(t, "k")
	})
}

// A session that holds some keys alone and shares others is renewed, and keeps both. Who waits for
// what it shares gets nothing in between.
func TestSharedLocksAreRenewed(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) { sharedRenewed(t, e, testbed.PgxOpened()) })
}

func sharedRenewed[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, _ := testbed.NewInstalled(t, e, c, txlock.WithSlots(64), txlock.WithLease(shortLease))
	alone, shared := f.Locks.Mutex("a"), f.Locks.Mutex("b", "c")
	lock := testbed.Lock(t, alone)
	also := testbed.LockIn(t, lock.Context(), shared.Shared())
	session := f.Look(t, "a")[0].Holder.ID
	before := f.Look(t, "b")[0]
	require.Len(t, before.Readers, 1)
	require.Equal(t, session, before.Readers[0].ID)
	reader := testbed.LockLater(alone.Shared())
	f.Waiters(t, 1)
	writer := testbed.LockLater(f.Locks.Mutex("b"))
	f.Waiters(t, 2)

	transactions := map[string]bool{}
	eventually.Every(t, "three renewals", testbed.PollEvery, func() bool {
		testbed.Misses(t, f.Locks.Mutex("c"))
		testbed.Misses(t, alone.Shared())
		h := horizonOf(t, f, session)
		transactions[h.xid] = true
		delete(transactions, "")
		return len(transactions) == 4 && h.xmin == ""
	})
	require.Empty(t, reader)
	require.Empty(t, writer)
	other := testbed.TryLock(t, f.Locks.Mutex("c").Shared())
	testbed.Unlock(t, other, also, lock)
	require.NoError(t, testbed.Receive(t, reader))
	require.NoError(t, testbed.Receive(t, writer))
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE "+
		"locktype = 'advisory' AND split_part(application_name, '#', 1) = '"+f.Label+"'"))
}

// A standby would grant a shared lock that excludes nobody on the primary.
func TestStandbyRefusesShared(t *testing.T) {
	t.Parallel()
	// No pair can be had of the further ones.
	paired := testbed.EnginesWhere(func(e *testbed.Engine) bool { return e.Postgres && !e.Further })
	testbed.Each(t, paired, func(t *testing.T, e *testbed.Engine) {
		pair := must.Get(servers.StartPair(background, e.Kind, true))(t)
		primary, standby := pair.Primary(), pair.Standby()
		testbed.Owned(t, standby)
		first := testbed.Owned(t, primary)
		f := testbed.NewFixture(t, first, testbed.PgxOpened())
		testbed.Unlock(t, testbed.Lock(t, f.Locks.Semaphore("k", 2)))
		held := testbed.Lock(t, f.Locks.Mutex("k"))
		eventually.Every(t, "the table on the standby", testbed.PollEvery, func() bool {
			second := must.Get(testbed.NewEngine(standby))(t)
			defer second.Admin.Close()
			var n int
			return second.Admin.QueryRow("SELECT count(*) FROM "+f.Table()).Scan(&n) == nil && n > 0
		})
		t.Run("pgx", func(t *testing.T) { sharedRefused(t, standby, f.Table(), testbed.PgxOpened(), "standby") })
		t.Run("sql.DB", func(t *testing.T) { sharedRefused(t, standby, f.Table(), testbed.PostgresSQL[0], "standby") })
		testbed.Unlock(t, held)
	})
}

// InnoDB would grant shared locks on a server that is read_only. Also, SET GLOBAL read_only ends no
// session: a holder learns of it by its next heartbeat, for another server may be the primary.
func TestReadOnlyServerRefusesShared(t *testing.T) {
	t.Parallel()
	for _, kind := range []servers.Kind{servers.MySQL, servers.MariaDB} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			e := testbed.Own(t, kind, "--max-connections=100")
			f := testbed.NewSizedFixture(t, e, testbed.MySQLOpened(), 4, "", txlock.WithLease(15*time.Second))
			var held []*txlock.Lock
			for _, m := range []*txlock.Mutex[*sql.Tx]{f.Locks.Mutex("alone"), f.Locks.Mutex("shared").Shared()} {
				lock := testbed.Lock(t, m)
				held = append(held, lock)
			}
			holder := ""
			eventually.True(t, "the holder is known", func() bool { // a slow MariaDB may not say so at first
				holdings := must.Get(f.Locks.Inspect(background, "alone"))(t)
				require.Len(t, holdings, 1)
				holder = holdings[0].Holder.ID
				return holder != ""
			})
			e.AsAdmin(t, "SET GLOBAL read_only = ON")
			for _, lock := range held {
				testbed.Receive(t, lock.Context().Done())
				err := lock.Unlock(background)
				require.ErrorIs(t, err, txlock.ErrLost)
				require.ErrorContains(t, err, "read_only")
			}
			over := time.Now()
			eventually.True(t, "its connection is closed: it has the tokens of before", func() bool {
				return f.Total(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE id = "+holder) == 0
			})
			require.Less(t, time.Since(over), 8*time.Second, "not by the server's wait_timeout")
			for _, c := range testbed.MySQLSQL {
				t.Run(c.Name, func(t *testing.T) { sharedRefused(t, e.Server, f.Table(), c, "read_only") })
			}
		})
	}
}

func sharedRefused[Tx any](t *testing.T, server *servers.Server, table string, c testbed.Client[Tx], why string) {
	e := must.Get(testbed.NewEngine(server))(t)
	t.Cleanup(func() { _ = e.Admin.Close() })
	dsn := server.DSN
	if !e.Postgres { // in which NOT binds tighter
		config := must.Get(mysql.ParseDSN(dsn))(t)
		config.Params = map[string]string{"sql_mode": "'HIGH_NOT_PRECEDENCE'"}
		dsn = config.FormatDSN()
	}
	driver, pool := c.Connect(t, dsn, 4)
	t.Cleanup(pool.Close)
	locks := txlock.New(driver, txlock.WithTable(table))
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	refused := []*txlock.Mutex[Tx]{locks.Mutex("k").Shared(), locks.Mutex("k", "l").Shared()}
	if e.Postgres {
		refused = append(refused, locks.Rows(table+"_permits", "id", 1).Shared(), locks.Semaphore("k", 2))
	}
	defer func() { require.ErrorIs(t, locks.Ping(background), txlock.ErrUnsafeEngine) }()
	for _, m := range refused {
		_, locked := m.Lock(background)
		if !e.Postgres && pool.Open != nil { // a pool of Open shows less
			require.Zero(t, pool.Open(), "the next call looks for the primary again")
		}
		_, tried := m.TryLock(background)
		done := m.Within(time.Minute).Do(background, idle[Tx])
		tx := c.Begin(t, dsn, 0)
		in := m.LockTx(background, tx)
		triedIn := m.TryLockTx(background, tx)
		require.NoError(t, testbed.ErrorOf(c.Query(background, tx, "SELECT 1")))
		require.NoError(t, c.End(background, tx, false))
		refusals := []error{locked, tried, done, in, triedIn}
		if strings.Contains(in.Error(), "Semaphore") { // it has no LockTx
			refusals = refusals[:3]
		}
		for _, err := range refusals {
			require.ErrorIs(t, err, txlock.ErrUnsafeEngine)
			require.NotErrorIs(t, err, txlock.ErrNotAcquired)
			require.ErrorContains(t, err, why)
			require.ErrorContains(t, err, e.Address()[strings.LastIndexByte(e.Address(), ':'):], "which server")
		}
	}
}
