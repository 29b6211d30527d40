package engines

import (
	"context"
	"database/sql"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// FOR UPDATE is no error for tables in which it locks nothing. Rows of these are refused, and a
// lock table among them.
func TestUnlockedTables(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		nothing := func(context.Context, *sql.Tx) error { return nil }
		inDB := func(name string) string { return f.Label + "." + name }
		engines := []string{"MyISAM", "MEMORY"}
		if f.Kind == servers.MariaDB {
			engines = append(engines, "Aria")
		}
		f.AsAdmin(t, "CREATE TABLE "+inDB("things")+" (id int primary key) ENGINE=InnoDB "+
			"PARTITION BY HASH(id) PARTITIONS 2")
		f.AsAdmin(t, "INSERT INTO "+inDB("things")+" VALUES (1), (2)")
		f.AsAdmin(t, "CREATE VIEW "+inDB("counted")+" AS SELECT id, COUNT(*) n FROM "+inDB("things")+" GROUP BY id")
		locked := []string{inDB("things")}
		if f.Kind != servers.MariaDB {
			locked = append(locked, inDB("spaced"))
			f.AsAdmin(t, "CREATE TABLE "+inDB("spaced")+" (id int primary key) TABLESPACE innodb_system")
			f.AsAdmin(t, "INSERT INTO "+inDB("spaced")+" VALUES (1)")
		}
		for _, table := range locked {
			require.NoError(t, f.Locks.Rows(table, "id", 1).Do(background, nothing), table)
		}
		unlocked := []string{inDB("counted")}
		for _, engine := range engines {
			f.AsAdmin(t, "CREATE TABLE "+inDB(engine)+" (id int primary key) ENGINE="+engine)
			f.AsAdmin(t, "INSERT INTO "+inDB(engine)+" VALUES (1)")
			unlocked = append(unlocked, inDB(engine))
		}
		for _, table := range unlocked {
			rows := f.Locks.Rows(table, "id", 1)
			for _, m := range []*txlock.Mutex[*sql.Tx]{rows, rows.Shared()} {
				_, err := m.Lock(background)
				require.ErrorIs(t, err, txlock.ErrUnsafeEngine, table)
				_, err = m.TryLock(background)
				require.ErrorIs(t, err, txlock.ErrUnsafeEngine, table)
				require.ErrorIs(t, m.Do(background, nothing), txlock.ErrUnsafeEngine, table)
			}
			require.NoError(t, f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
				require.ErrorIs(t, rows.Do(ctx, nothing), txlock.ErrUnsafeEngine, table)
				return nil
			}))
			tx := f.Guest(t)
			require.ErrorIs(t, rows.LockTx(background, tx), txlock.ErrUnsafeEngine, table)
			require.NoError(t, tx.Rollback())
		}

		f, name := testbed.NewFixtureWithTable(t, f.Engine, f.Client, txlock.WithSlots(4))
		require.NoError(t, f.Locks.Install(background))
		for _, table := range []string{name, name + "_permits", name + "_once"} {
			f.AsAdmin(t, "ALTER TABLE "+table+" ENGINE = MyISAM")
		}
		driver, pool := f.Connect(t, f.DSNFor(f.Label, "", nil), 2)
		t.Cleanup(pool.Close)
		locks := txlock.New(driver, txlock.WithTable(name))
		_, err := locks.Mutex("a").Lock(background)
		require.ErrorIs(t, err, txlock.ErrUnsafeEngine)
		_, err = locks.Semaphore("a", 2).Lock(background)
		require.ErrorIs(t, err, txlock.ErrUnsafeEngine)
		f.AsAdmin(t, "ALTER TABLE "+name+" ENGINE = InnoDB")
		_, err = locks.Once("a").Do(background, nothing)
		require.ErrorIs(t, err, txlock.ErrUnsafeEngine)
	})
}

// LockTx asks what the table is, at its first use, without a snapshot of the caller's transaction:
// what that reads afterwards is what the last holder has written.
func TestAskingForTheEngineTakesNoSnapshot(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		table := f.MakeTable(t, "id int primary key, n int")
		f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1, 1)")
		holder := f.Guest(t)
		require.NoError(t, f.Exec(background, holder, "UPDATE "+table+" SET n = 2"))
		tx := f.Begin(t, f.DSNFor(f.Label, "", nil), sql.LevelRepeatableRead)
		locked := make(chan error, 1)
		go func() { locked <- f.Locks.Rows(table, "id", 1).LockTx(background, tx) }()
		f.Waiters(t, 1)
		require.NoError(t, holder.Commit())
		require.NoError(t, <-locked)
		n, err := f.Query(background, tx, "SELECT n FROM "+table)
		require.NoError(t, err)
		require.Equal(t, "2", n)
		require.NoError(t, tx.Rollback())
	})
}

// A user who may lock a table by one column alone is not shown what it is, and so is refused, with
// the privilege that it takes. So is one who is not shown a view.
func TestUnlockedTablesOfLimitedUser(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		table, user := f.MakeTable(t, "id int primary key, n int"), "u_"+f.Label[5:]
		f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1, 1)")
		f.AsAdmin(t, "CREATE VIEW "+f.Label+".viewed AS SELECT id, COUNT(*) n FROM "+table+" GROUP BY id")
		f.AsAdmin(t, "CREATE USER "+user+"@'%' IDENTIFIED BY 'secret'")
		t.Cleanup(func() { f.AsAdmin(t, "DROP USER "+user+"@'%'") })
		f.AsAdmin(t, "GRANT SELECT (id), UPDATE (id) ON "+table+" TO "+user+"@'%'")
		f.AsAdmin(t, "GRANT SELECT, UPDATE ON "+f.Label+".viewed TO "+user+"@'%'")
		config, err := mysql.ParseDSN(f.DSNFor(f.Label, "", nil))
		require.NoError(t, err)
		config.User, config.Passwd = user, "secret"
		driver, pool := f.Connect(t, config.FormatDSN(), 2)
		t.Cleanup(pool.Close)
		locks := txlock.New(driver)
		for _, name := range []string{"things", "viewed"} {
			_, err := locks.Rows(name, "id", 1).Lock(background)
			require.ErrorContains(t, err, "GRANT SELECT on all of it")
		}
	})
}
