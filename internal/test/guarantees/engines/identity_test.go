package engines

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
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
	for _, e := range testbed.Engines {
		if !e.Postgres {
			continue
		}
		t.Run("pgactive on "+e.Name, func(t *testing.T) { // played by a row in the catalog
			t.Parallel()
			dsn := newDatabase(t, e)
			admin, err := sql.Open("pgx", dsn)
			require.NoError(t, err)
			t.Cleanup(func() { _ = admin.Close() })
			require.NoError(t, installBySchema(t, admin, testbed.PostgresSQL[0], dsn))
			for _, text := range []string{
				"create table things (id int primary key)",
				"set allow_system_table_mods = on; insert into pg_extension (oid, extname, extowner, " +
					"extnamespace, extrelocatable, extversion) select 99999, 'pgactive', 10, oid, false, '2' " +
					"from pg_namespace limit 1",
			} {
				_, err := admin.Exec(text)
				require.NoError(t, err)
			}
			for _, c := range testbed.PostgresPgx {
				t.Run(c.Name, func(t *testing.T) { refusesAll(t, c, dsn, "pgactive") })
			}
			t.Run("sql.DB", func(t *testing.T) { refusesAll(t, testbed.PostgresSQL[0], dsn, "pgactive") })
			_, err = admin.Exec("set allow_system_table_mods = on; update pg_extension set extname = 'spock' " +
				"where oid = 99999")
			require.NoError(t, err)
			driver, p := testbed.PgxOpened().Connect(t, dsn, 4)
			defer p.Close()
			locks := txlock.New(driver)
			lock, err := locks.Mutex("k").Lock(background) // it may serve a cluster with one primary
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(background))
			require.ErrorIs(t, locks.Check(background), txlock.ErrUnsafeEngine)
			require.ErrorIs(t, locks.Install(background), txlock.ErrUnsafeEngine)
			require.NoError(t, locks.Close())
		})
	}
}

func callsItself(t *testing.T, name, version string) {
	server, err := servers.Start(background, servers.MariaDB, servers.Options{Settings: []string{
		"--version=" + version, "--log-output=TABLE",
	}})
	require.NoError(t, err)
	e := testbed.Owned(t, server)
	require.NoError(t, installBySchema(t, e.Admin, testbed.MySQLSQL[0], server.DSN))
	_, err = e.Admin.Exec("CREATE TABLE things (id INT PRIMARY KEY)")
	require.NoError(t, err)
	_, err = e.Admin.Exec("SET GLOBAL general_log = ON")
	require.NoError(t, err)
	for _, c := range testbed.MySQLSQL {
		t.Run(c.Name, func(t *testing.T) { refusesAll(t, c, server.DSN, name) })
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

// refusesAll makes each call the first of a driver.
func refusesAll[Tx any](t *testing.T, c testbed.Client[Tx], dsn, says string) {
	unlocked := func(_ *txlock.Lock, err error) error { return err }
	work := func(context.Context, Tx) error {
		t.Error("the work must not run")
		return nil
	}
	ran := func(_ bool, err error) error { return err }
	inTx := func(lock func(Tx) error) error {
		tx := c.Begin(t, dsn, sql.LevelDefault)
		err := lock(tx)
		require.NoError(t, c.Exec(background, tx, "SELECT 1"))
		require.NoError(t, c.End(background, tx, false))
		return err
	}
	for name, call := range map[string]func(*txlock.Locker[Tx]) error{
		"Install":   func(l *txlock.Locker[Tx]) error { return l.Install(background) },
		"Check":     func(l *txlock.Locker[Tx]) error { return l.Check(background) },
		"Ping":      func(l *txlock.Locker[Tx]) error { return l.Ping(background) },
		"Lock":      func(l *txlock.Locker[Tx]) error { return unlocked(l.Mutex("k").Lock(background)) },
		"TryLock":   func(l *txlock.Locker[Tx]) error { return unlocked(l.Mutex("k").TryLock(background)) },
		"Do":        func(l *txlock.Locker[Tx]) error { return l.Mutex("k").Do(background, work) },
		"TryDo":     func(l *txlock.Locker[Tx]) error { return l.Mutex("k").TryDo(background, work) },
		"Shared":    func(l *txlock.Locker[Tx]) error { return unlocked(l.Mutex("k").Shared().Lock(background)) },
		"Semaphore": func(l *txlock.Locker[Tx]) error { return unlocked(l.Semaphore("k", 2).TryLock(background)) },
		"Once":      func(l *txlock.Locker[Tx]) error { return ran(l.Once("k").Do(background, work)) },
		"once, a try": func(l *txlock.Locker[Tx]) error {
			return ran(l.Once("k").TryDo(background, work))
		},
		"Rows":        func(l *txlock.Locker[Tx]) error { return unlocked(l.Rows("things", "id", 1).Lock(background)) },
		"rows, a try": func(l *txlock.Locker[Tx]) error { return l.Rows("things", "id", 1).TryDo(background, work) },
		"LockTx": func(l *txlock.Locker[Tx]) error {
			return inTx(func(tx Tx) error { return l.Mutex("k").LockTx(background, tx) })
		},
		"rows, in a transaction": func(l *txlock.Locker[Tx]) error {
			return inTx(func(tx Tx) error { return l.Rows("things", "id", 1).TryLockTx(background, tx) })
		},
		"DoTx": func(l *txlock.Locker[Tx]) error {
			return inTx(func(tx Tx) error { return ran(l.Once("k").DoTx(background, tx)) })
		},
		"Election": func(l *txlock.Locker[Tx]) error {
			return l.Election("k", "me").Lead(background, func(context.Context, int64) error {
				t.Error("nobody must lead")
				return nil
			})
		},
		"Combine": func(l *txlock.Locker[Tx]) error {
			c := txlock.Combine(func([]int) *txlock.Mutex[Tx] { return l.Mutex("k") },
				func(context.Context, Tx, []int) ([]txlock.Result[int], error) {
					t.Error("the work must not run")
					return nil, nil
				})
			_, err := c.Do(background, 1)
			return err
		},
	} {
		driver, p := c.Connect(t, dsn, 2)
		locks := txlock.New(driver)
		for range 2 {
			err := call(locks)
			require.ErrorIs(t, err, txlock.ErrUnsafeEngine, name)
			require.ErrorContains(t, err, says, name)
		}
		require.NoError(t, locks.Close())
		p.Close()
	}
}

// Check and Install refuse a lock table that is replicated both ways, and take one that is copied
// one way only.
func TestReplicatedBothWays(t *testing.T) {
	t.Parallel()
	server, err := servers.Start(background, servers.Postgres(), servers.Options{Settings: []string{
		"-c", "wal_level=logical",
	}})
	require.NoError(t, err)
	e := testbed.Owned(t, server)
	var nodes []*sql.DB
	var locks []*txlock.Locker[*sql.Tx]
	for _, name := range []string{"here", "there"} {
		e.AsAdmin(t, "create database "+name)
		dsn := strings.Replace(server.DSN, "/txlock", "/"+name, 1)
		driver, p := testbed.PostgresSQL[0].Connect(t, dsn, 4)
		t.Cleanup(p.Close)
		nodes = append(nodes, p.DB)
		locks = append(locks, txlock.New(driver, txlock.WithSlots(16)))
	}
	for i, node := range nodes {
		require.NoError(t, locks[i].Install(background))
		// A subscription to the same server hangs when it makes its slot.
		for _, text := range []string{
			"create publication all_tables for all tables",
			"select pg_create_logical_replication_slot('slot_" + fmt.Sprint(i) + "', 'pgoutput')",
		} {
			_, err := node.Exec(text)
			require.NoError(t, err)
		}
	}
	subscribe := func(i int) {
		_, err := nodes[i].Exec(fmt.Sprintf("create subscription sub connection '%s' publication all_tables with "+
			"(create_slot = false, slot_name = slot_%d, copy_data = false)",
			strings.Replace(server.DSN, "/txlock", []string{"/there", "/here"}[i], 1), 1-i))
		require.NoError(t, err)
		t.Cleanup(func() {
			for _, text := range []string{
				"alter subscription sub disable", "alter subscription sub set (slot_name = none)",
				"drop subscription sub",
			} {
				_, err := nodes[i].Exec(text)
				require.NoError(t, err)
			}
		})
	}
	_, err = nodes[1].Exec("drop publication all_tables")
	require.NoError(t, err)
	subscribe(1)
	for _, l := range locks { // a standby of a kind, and its primary
		require.NoError(t, l.Check(background))
	}
	_, err = nodes[1].Exec("create publication all_tables for all tables")
	require.NoError(t, err)
	subscribe(0)
	for _, l := range locks {
		for _, err := range []error{l.Check(background), l.Install(background)} {
			require.ErrorIs(t, err, txlock.ErrUnsafeEngine)
			require.ErrorContains(t, err, "publication all_tables carries them out")
		}
	}
	_, err = nodes[0].Exec("alter publication all_tables rename to others; drop publication others; " +
		"create table others (); create publication others for table others")
	require.NoError(t, err)
	require.NoError(t, locks[0].Check(background), "the lock table is brought in, and not carried out")
}
