package engines

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// A server that is known not to exclude is refused before the first lock, whichever call is the
// first.
func TestKnownUnsafe(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]string{"TiDB": "8.0.11-TiDB-v8.5.0", "Vitess": "8.4.6-Vitess"} {
		t.Run(name, func(t *testing.T) { // played by a MariaDB that calls itself so
			t.Parallel()
			callsItself(t, name, version)
		})
	}
	for _, e := range testbed.AllPostgres() {
		t.Run("pgactive on "+e.Name, func(t *testing.T) { // played by a row in the catalog
			t.Parallel()
			dsn := newDatabase(t, e)
			admin := database.Open(t, "pgx", dsn)
			require.NoError(t, installBySchema(t, admin, testbed.PostgresSQL[0], dsn))
			for _, text := range []string{
				"create table things (id int primary key)",
				"set allow_system_table_mods = on; insert into pg_extension (oid, extname, extowner, " +
					"extnamespace, extrelocatable, extversion) select 99999, 'pgactive', 10, oid, false, '2' " +
					"from pg_namespace limit 1",
			} {
				database.Exec(t, admin, text)
			}
			for _, c := range testbed.PostgresPgx {
				t.Run(c.Name, func(t *testing.T) { refusesAll(t, c, dsn, "pgactive", txlock.ErrUnsafeEngine) })
			}
			t.Run("sql.DB", func(t *testing.T) {
				refusesAll(t, testbed.PostgresSQL[0], dsn, "pgactive", txlock.ErrUnsafeEngine)
			})
			database.Exec(t, admin, "set allow_system_table_mods = on; update pg_extension set extname = 'spock' "+
				"where oid = 99999")
			locks := testbed.PgxOpened().Locker(t, dsn, 4)
			lock := must.Get(locks.Mutex("k").Lock(background))(t) // it may serve a cluster with one primary
			testbed.Unlock(t, lock)
			require.ErrorIs(t, locks.Check(background), txlock.ErrUnsafeEngine)
			require.ErrorIs(t, locks.Install(background), txlock.ErrUnsafeEngine)
			require.NoError(t, locks.Close())
		})
	}
}

func callsItself(t *testing.T, name, version string) {
	e := testbed.Own(t, servers.MariaDB, "--version="+version, "--log-output=TABLE")
	require.NoError(t, installBySchema(t, e.Admin, testbed.MySQLSQL[0], e.DSN))
	database.Exec(t, e.Admin, "CREATE TABLE things (id INT PRIMARY KEY)")
	database.Exec(t, e.Admin, "SET GLOBAL general_log = ON")
	for _, c := range testbed.MySQLSQL {
		t.Run(c.Name, func(t *testing.T) { refusesAll(t, c, e.DSN, name, txlock.ErrUnsafeEngine) })
	}
	var locked int
	require.NoError(t, e.Admin.QueryRow("SELECT COUNT(*) FROM mysql.general_log WHERE "+
		"argument LIKE '%FOR UPDATE%' OR argument LIKE '%SHARE MODE%' OR argument LIKE '%GET_LOCK%'").Scan(&locked))
	require.Equal(t, 1, locked, "this query alone")
}

// newDatabase makes a database on e, and returns its address.
func newDatabase(t *testing.T, e *testbed.Engine) (dsn string) {
	name := strings.ToLower(testbed.NewLabel())
	e.AsAdmin(t, "create database "+name)
	t.Cleanup(func() { e.AsAdmin(t, "drop database "+name+" with (force)") })
	return strings.Replace(e.DSN, "/txlock", "/"+name, 1)
}

func installBySchema[Tx any](t *testing.T, admin *sql.DB, c testbed.Client[Tx], dsn string) error {
	driver, p := c.Connect(t, dsn, 1)
	defer p.Close()
	for _, text := range strings.Split(txlock.New(driver, txlock.WithSlots(16)).Schema(), ";\n") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		if _, err := admin.Exec(text); err != nil {
			return err
		}
	}
	return nil
}

// refusesAll makes each call the first of a driver. It must be an error that matches is, and names
// what is wrong. It runs no work, and a transaction of the caller's is usable behind it.
func refusesAll[Tx any](t *testing.T, c testbed.Client[Tx], dsn, says string, is error, options ...txlock.Option) {
	t.Helper()
	of := func(_ any, err error) error { return err }
	work := func(context.Context, Tx) error {
		t.Error("the work must not run")
		return nil
	}
	inTx := func(lock func(Tx) error) error {
		tx := c.Begin(t, dsn, sql.LevelDefault)
		err := lock(tx)
		require.NoError(t, c.Exec(background, tx, "SELECT 1"))
		require.NoError(t, c.End(background, tx, false))
		return err
	}
	for name, call := range map[string]func(*txlock.Locker[Tx]) error{
		"Install":    func(l *txlock.Locker[Tx]) error { return l.Install(background) },
		"Check":      func(l *txlock.Locker[Tx]) error { return l.Check(background) },
		"Ping":       func(l *txlock.Locker[Tx]) error { return l.Ping(background) },
		"Lock":       func(l *txlock.Locker[Tx]) error { return of(l.Mutex("k").Lock(background)) },
		"TryLock":    func(l *txlock.Locker[Tx]) error { return of(l.Mutex("k").TryLock(background)) },
		"Do":         func(l *txlock.Locker[Tx]) error { return l.Mutex("k").Do(background, work) },
		"TryDo":      func(l *txlock.Locker[Tx]) error { return l.Mutex("k").TryDo(background, work) },
		"Shared":     func(l *txlock.Locker[Tx]) error { return of(l.Mutex("k").Shared().Lock(background)) },
		"Semaphore":  func(l *txlock.Locker[Tx]) error { return of(l.Semaphore("k", 2).TryLock(background)) },
		"Once.Do":    func(l *txlock.Locker[Tx]) error { return of(l.Once("k").Do(background, work)) },
		"Once.TryDo": func(l *txlock.Locker[Tx]) error { return of(l.Once("k").TryDo(background, work)) },
		"Claim.TryTake": func(l *txlock.Locker[Tx]) error {
			return of(l.Claim("k").TryTake(background, "me", time.Minute))
		},
		"Rows.Lock":  func(l *txlock.Locker[Tx]) error { return of(l.Rows("things", "id", 1).Lock(background)) },
		"Rows.TryDo": func(l *txlock.Locker[Tx]) error { return l.Rows("things", "id", 1).TryDo(background, work) },
		"Exec": func(l *txlock.Locker[Tx]) error {
			return of(l.Mutex("k").Exec(background, txlock.Statement{SQL: "SELECT 1"}))
		},
		"LockTx": func(l *txlock.Locker[Tx]) error {
			return inTx(func(tx Tx) error { return l.Mutex("k").LockTx(background, tx) })
		},
		"Rows.TryLockTx": func(l *txlock.Locker[Tx]) error {
			return inTx(func(tx Tx) error { return l.Rows("things", "id", 1).TryLockTx(background, tx) })
		},
		"DoTx": func(l *txlock.Locker[Tx]) error {
			return inTx(func(tx Tx) error { return of(l.Once("k").DoTx(background, tx)) })
		},
		"Election": func(l *txlock.Locker[Tx]) error {
			return l.Election("k", "me").Lead(background, func(ctx context.Context, _ int64) error {
				var none Tx
				return work(ctx, none)
			})
		},
	} {
		driver, p := c.Connect(t, dsn, 2)
		locks := txlock.New(driver, options...)
		for range 2 {
			err := call(locks)
			require.ErrorContains(t, err, says, name)
			require.NotErrorIs(t, err, txlock.ErrLost, name)
			require.True(t, is == nil || errors.Is(err, is), name)
		}
		require.NoError(t, locks.Close())
		p.Close()
	}
}

// Check and Install refuse a lock table that is replicated both ways, and take one that is copied
// one way only.
func TestReplicatedBothWays(t *testing.T) {
	t.Parallel()
	e := testbed.Own(t, servers.Postgres(), "-c", "wal_level=logical")
	names := []string{"here", "there"}
	var nodes []*sql.DB
	var locks []*txlock.Locker[*sql.Tx]
	dsnOf := func(name string) string { return strings.Replace(e.DSN, "/txlock", "/"+name, 1) }
	run := func(i int, texts ...string) {
		t.Helper()
		for _, text := range texts {
			require.NoError(t, testbed.ErrorOf(nodes[i].Exec(text)))
		}
	}
	for i, name := range names {
		e.AsAdmin(t, "create database "+name)
		driver, p := testbed.PostgresSQL[0].Connect(t, dsnOf(name), 4)
		t.Cleanup(p.Close)
		nodes = append(nodes, p.DB)
		locks = append(locks, txlock.New(driver, txlock.WithSlots(16)))
		require.NoError(t, locks[i].Install(background))
		// A subscription to the same server hangs when it makes its slot.
		run(i, "create publication all_tables for all tables",
			fmt.Sprintf("select pg_create_logical_replication_slot('slot_%d', 'pgoutput')", i))
	}
	subscribe := func(i int) {
		run(i, fmt.Sprintf("create subscription sub connection '%s' publication all_tables with "+
			"(create_slot = false, slot_name = slot_%d, copy_data = false)", dsnOf(names[1-i]), 1-i))
		t.Cleanup(func() {
			run(i, "alter subscription sub disable", "alter subscription sub set (slot_name = none)",
				"drop subscription sub")
		})
	}
	run(1, "drop publication all_tables")
	subscribe(1)
	for _, l := range locks { // a standby of a kind, and its primary
		require.NoError(t, l.Check(background))
	}
	run(1, "create publication all_tables for all tables")
	subscribe(0)
	for _, l := range locks {
		for _, err := range []error{l.Check(background), l.Install(background)} {
			require.ErrorIs(t, err, txlock.ErrUnsafeEngine)
			require.ErrorContains(t, err, "publication all_tables carries them out")
		}
	}
	run(0, "alter publication all_tables rename to others", "drop publication others", "create table others ()",
		"create publication others for table others")
	require.NoError(t, locks[0].Check(background), "the lock table is brought in, and not carried out")
}

// In a replication group where all members take writes, a member is refused: its locks exclude
// nobody on the others.
func TestNodeOfCluster(t *testing.T) {
	t.Parallel()
	node := must.Get(servers.StartNode(background, servers.MySQL))(t)
	e := testbed.Owned(t, node)
	locks := testbed.MySQLSQL[0].Locker(t, node.DSN, 2)
	refused := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, txlock.ErrUnsafeEngine)
		require.ErrorContains(t, err, "one node only")
	}
	refused(locks.Install(background))
	refused(locks.Check(background))
	_, err := locks.Mutex("k").TryLock(background)
	refused(err)

	e.AsAdmin(t, "SELECT group_replication_switch_to_single_primary_mode()") // the fix of txlock doctor
	f := testbed.NewSizedFixture(t, e, testbed.MySQLSQL[0], 2, "", txlock.WithFencing())
	require.NoError(t, f.Locks.Install(background))
	require.NoError(t, f.Locks.Check(background))
	lock := testbed.Lock(t, f.Locks.Mutex(f.Key("token")))
	testbed.Unlock(t, lock)
	require.NoError(t, f.Locks.Election("e", "me").Lead(background,
		func(_ context.Context, term int64) error {
			require.Greater(t, term, lock.Token())
			return nil
		}))
	e.AsAdmin(t, "DROP TABLE "+e.Table()+"_runs") // as an earlier version has made it
	_, err = e.Admin.Exec("CREATE TABLE " + e.Table() + "_runs (server BIGINT UNSIGNED NOT NULL, " +
		"epoch BIGINT NOT NULL PRIMARY KEY, start BIGINT UNSIGNED NOT NULL) ENGINE=MEMORY")
	require.NoError(t, err)
	require.ErrorContains(t, testbed.ErrorOf(f.Locks.Mutex(f.Key("token")).Lock(background)), "3098")
	require.NoError(t, f.Locks.Install(background))
	again := testbed.Lock(t, f.Locks.Mutex(f.Key("token")))
	require.Greater(t, again.Token(), lock.Token())
	testbed.Unlock(t, again)
	e.AsAdmin(t, "SELECT group_replication_switch_to_multi_primary_mode()")
	refused(f.Locks.Check(background))
}

// A server that has the group plugin, and is in no group, is no node.
func TestNodeOfNoCluster(t *testing.T) {
	t.Parallel()
	e := testbed.Own(t, servers.MySQL, "--plugin-load-add=group_replication.so",
		"--loose-group-replication-single-primary-mode=OFF", "--loose-group-replication-start-on-boot=OFF")
	f := testbed.NewFixture(t, e, testbed.MySQLSQL[0])
	require.NoError(t, f.Locks.Check(background))
}

// While a call waits, or a connection is idle, another server takes over and this one comes back.
// The next token is of a run behind the other's.
func TestPrimaryAgain(t *testing.T) {
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) {
		for _, c := range []testbed.Client[*sql.Tx]{testbed.MySQLOpened(), testbed.MySQLSQL[0]} {
			f, table := testbed.NewInstalled(t, e, c, txlock.WithFencing(), txlock.WithSlots(16))
			away := func() (run int64) {
				f.AsAdmin(t, "INSERT INTO "+table+"_epochs VALUES ()")
				f.AsAdmin(t, "REPLACE INTO "+table+"_runs SELECT 4242, MAX(epoch), UUID_SHORT() FROM "+table+"_epochs")
				require.NoError(t, e.Admin.QueryRow("SELECT MAX(epoch) FROM "+table+"_runs").Scan(&run))
				return run
			}
			all := []string{"a", "b", "c"} // a wait for each, so for the first of their slots and for the last
			for _, key := range all {
				first := testbed.Lock(t, f.Locks.Mutex(key))
				granted := testbed.Granted(t, f.Locks.Mutex(all...))
				f.Waiters(t, 1)
				other := away()
				testbed.Unlock(t, first)
				second := testbed.Receive(t, granted)
				require.Greater(t, testbed.RunOf(second.Token()), other, key)
				testbed.Unlock(t, second)
			}
			other := away()
			permit := testbed.TryLock(t, f.Locks.Semaphore("s", 3))
			require.Greater(t, testbed.RunOf(permit.Token()), other)
			testbed.Unlock(t, permit)
			other = away()
			third := testbed.Lock(t, f.Locks.Mutex("a"))
			require.Greater(t, testbed.RunOf(third.Token()), other)
			testbed.Unlock(t, third)
		}
	})
}
