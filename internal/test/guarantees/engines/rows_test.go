package engines

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// Who waits for a row that moves to another partition meanwhile gets it there.
func TestRowMovesToAnotherPartition(t *testing.T) {
	bothPostgres(t, rowMoves[pgx.Tx], rowMoves[*sql.Tx])
}

func rowMoves[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int, region int) PARTITION BY LIST (region")
	f.AsAdmin(t, "CREATE TABLE "+table+"_even PARTITION OF "+table+" FOR VALUES IN (0)")
	f.AsAdmin(t, "CREATE TABLE "+table+"_odd PARTITION OF "+table+" FOR VALUES IN (1)")
	f.AsAdmin(t, "CREATE INDEX ON "+table+" (id)")
	f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1, 0)")
	row := f.Locks.Rows(table, "id", 1)

	// moved is what wait gets while the row moves, and what follows is done to it.
	moved := func(wait func() error, further string) error {
		mover := database.Begin(t, e.Admin, "UPDATE "+table+" SET region = 1 - region; "+further)
		waited := testbed.Go(wait)
		f.Waiters(t, 1)
		require.NoError(t, mover.Commit())
		return testbed.Receive(t, waited)
	}
	again := func(err error) { // the error says so
		t.Helper()
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.ErrorContains(t, err, "ask again")
	}
	again(moved(func() error { return row.Do(background, idle[Tx]) }, ""))
	require.NoError(t, row.Do(background, idle[Tx]))
	require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, _ Tx) error {
		again(moved(func() error { return row.Do(ctx, idle[Tx]) }, ""))
		return row.Do(ctx, idle[Tx])
	}), "a nested Do")
	tx := f.Guest(t)
	again(moved(func() error { return row.LockTx(background, tx) }, ""))
	require.NoError(t, row.LockTx(background, tx))
	require.ErrorIs(t, row.TryDo(background, idle[Tx]), txlock.ErrNotAcquired, "LockTx holds it where it is now")
	require.NoError(t, c.End(background, tx, false))
	again(moved(func() error { return row.Do(background, idle[Tx]) }, "DELETE FROM "+table))
	require.ErrorIs(t, row.Do(background, idle[Tx]), txlock.ErrNoRow, "gone from its new place")
}

// A locked row of the caller's is excluded from what other programs do to it, and takes new rows
// that refer to it.
func TestLockedRowTakesChildren(t *testing.T) {
	bothPostgres(t, lockedRowTakesChildren[pgx.Tx], lockedRowTakesChildren[*sql.Tx])
}

func lockedRowTakesChildren[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	parent := f.MakeTable(t, "id int primary key, name text")
	child := parent + "_child"
	f.AsAdmin(t, "CREATE TABLE "+child+" (parent int references "+parent+")")
	t.Cleanup(func() { f.AsAdmin(t, "DROP TABLE "+child) })
	f.AsAdmin(t, "INSERT INTO "+parent+" VALUES (1, 'one'), (2, 'two')")

	others := func() {
		limited, cancel := context.WithTimeout(background, 10*time.Second)
		defer cancel()
		conn, err := e.Admin.Conn(limited)
		require.NoError(t, err)
		defer conn.Close()
		if _, err = conn.ExecContext(limited, "INSERT INTO "+child+" VALUES (1)"); err != nil {
			t.Error(err) // and go on: the lock must end before the tables can be dropped
			return
		}
		require.NoError(t, testbed.ErrorOf(conn.ExecContext(limited, "SET lock_timeout = '20ms'")))
		defer func() { _, _ = conn.ExecContext(limited, "RESET lock_timeout") }()
		for _, statement := range []string{
			"UPDATE " + parent + " SET name = 'other' WHERE id = 1", "DELETE FROM " + parent + " WHERE id = 2",
			"SELECT 1 FROM " + parent + " WHERE id = 1 FOR UPDATE",
			"SELECT 1 FROM " + parent + " WHERE id = 2 FOR NO KEY UPDATE NOWAIT",
		} {
			require.ErrorContains(t, testbed.ErrorOf(conn.ExecContext(limited, statement)), "55P03", statement)
		}
	}
	rows := f.Locks.Rows(parent, "id", 1, 2)
	lock := testbed.Lock(t, rows)
	others()
	testbed.Unlock(t, lock)
	require.NoError(t, rows.TryDo(background, func(context.Context, Tx) error {
		others()
		return nil
	}))
	tx := f.Guest(t)
	require.NoError(t, rows.LockTx(background, tx))
	others()
	require.NoError(t, c.End(background, tx, false))
}

// FOR UPDATE is no error for tables in which it locks nothing. Rows of these are refused, and a
// lock table among them.
func TestUnlockedTables(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
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
			require.NoError(t, f.Locks.Rows(table, "id", 1).Do(background, idle[*sql.Tx]), table)
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
				require.ErrorIs(t, testbed.ErrorOf(m.Lock(background)), txlock.ErrUnsafeEngine, table)
				require.ErrorIs(t, testbed.ErrorOf(m.TryLock(background)), txlock.ErrUnsafeEngine, table)
				require.ErrorIs(t, m.Do(background, idle[*sql.Tx]), txlock.ErrUnsafeEngine, table)
			}
			require.NoError(t, f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
				require.ErrorIs(t, rows.Do(ctx, idle[*sql.Tx]), txlock.ErrUnsafeEngine, table)
				return nil
			}))
			tx := f.Guest(t)
			require.ErrorIs(t, rows.LockTx(background, tx), txlock.ErrUnsafeEngine, table)
			require.NoError(t, tx.Rollback())
		}

		f, name := testbed.NewInstalled(t, f.Engine, f.Client, txlock.WithSlots(4))
		for _, table := range []string{name, name + "_permits", name + "_once"} {
			f.AsAdmin(t, "ALTER TABLE "+table+" ENGINE = MyISAM")
		}
		locks := f.Another(t, 2, txlock.WithTable(name))
		require.ErrorIs(t, testbed.ErrorOf(locks.Mutex("a").Lock(background)), txlock.ErrUnsafeEngine)
		require.ErrorIs(t, testbed.ErrorOf(locks.Semaphore("a", 2).Lock(background)), txlock.ErrUnsafeEngine)
		f.AsAdmin(t, "ALTER TABLE "+name+" ENGINE = InnoDB")
		require.ErrorIs(t, testbed.ErrorOf(locks.Once("a").Do(background, idle[*sql.Tx])), txlock.ErrUnsafeEngine)
	})
}

// LockTx asks what the table is, at its first use, without a snapshot of the caller's transaction:
// what that reads afterwards is what the last holder has written.
func TestAskingForTheEngineTakesNoSnapshot(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		table := f.MakeTable(t, "id int primary key, n int", "(1, 1)")
		holder := f.Guest(t)
		require.NoError(t, f.Exec(background, holder, "UPDATE "+table+" SET n = 2"))
		tx := f.Begin(t, f.DSNFor(f.Label, "", nil), sql.LevelRepeatableRead)
		locked := testbed.Go(func() error { return f.Locks.Rows(table, "id", 1).LockTx(background, tx) })
		f.Waiters(t, 1)
		require.NoError(t, holder.Commit())
		require.NoError(t, <-locked)
		n := f.Read(t, tx, "SELECT n FROM "+table)
		require.Equal(t, "2", n)
		require.NoError(t, tx.Rollback())
	})
}

// A user who may lock a table by one column alone is not shown what it is, and so is refused, with
// the privilege that it takes. So is one who is not shown a view.
func TestUnlockedTablesOfLimitedUser(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		table := f.MakeTable(t, "id int primary key, n int", "(1, 1)")
		f.AsAdmin(t, "CREATE VIEW "+f.Label+".viewed AS SELECT id, COUNT(*) n FROM "+table+" GROUP BY id")
		user := testbed.OrdinaryUser(t, f, "", "GRANT SELECT (id), UPDATE (id) ON "+table,
			"GRANT SELECT, UPDATE ON "+f.Label+".viewed")
		f.AsAdmin(t, "REVOKE ALL ON "+f.Label+".* FROM "+user.User)
		locks := f.Locker(t, user.FormatDSN(), 2)
		for _, name := range []string{"things", "viewed"} {
			_, err := locks.Rows(name, "id", 1).Lock(background)
			require.ErrorContains(t, err, "GRANT SELECT on all of it")
		}
	})
}
