package engines

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// callersPool is a pool of one connection, whose sessions begin with the settings of change, and a
// Locker on it.
func callersPool(t *testing.T, f *testbed.Fixture[*sql.Tx], change func(params map[string]string)) (
	*txlock.Locker[*sql.Tx], *sql.DB,
) {
	config, err := mysql.ParseDSN(f.DSNFor(f.Label, "", nil))
	require.NoError(t, err)
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	change(config.Params)
	driver, pool := f.Connect(t, config.FormatDSN(), 1)
	t.Cleanup(pool.Close)
	locks := txlock.New(driver, txlock.WithTable(f.Table()))
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	return locks, pool.DB
}

// onCallersPools runs test with each client that locks on a pool of the caller's.
func onCallersPools(t *testing.T, test func(*testing.T, *testbed.Fixture[*sql.Tx])) {
	onMySQL(t, testbed.MySQLSQL[:1], test)
}

// onMySQL runs test with some of the clients of MySQL and MariaDB.
func onMySQL(t *testing.T, clients []testbed.Client[*sql.Tx], test func(*testing.T, *testbed.Fixture[*sql.Tx])) {
	t.Parallel()
	for _, e := range testbed.Engines {
		if e.Postgres {
			continue
		}
		for _, c := range clients {
			t.Run(e.Name+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				test(t, testbed.NewFixture(t, e, c))
			})
		}
	}
}

// A transaction that a connection of the pool was left with is committed before the lock, as
// BeginTx would do. So work reads what is current, and what fails in it is undone alone.
func TestLeftoverTransaction(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		table := f.MakeTable(t, "id int primary key, n int")
		for _, begin := range []string{"SET autocommit = 0", "BEGIN"} {
			locks, db := callersPool(t, f, func(map[string]string) {})
			for _, use := range []string{"first", "second"} { // the first also reads the number of slots
				leftover(t, f, locks, db, table, begin, use+" use after "+begin)
				_, err := db.Exec("SET autocommit = 1")
				require.NoError(t, err)
			}
		}
	})
}

// Inspect commits it too: on MariaDB it waits for the row on connections of the caller's.
func TestInspectOnLeftoverTransactions(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		const connections = 6
		table := f.MakeTable(t, "id int primary key")
		held, err := f.Locks.Mutex(f.Key("held")).Lock(background)
		require.NoError(t, err)
		driver, pool := f.Connect(t, f.DSNFor(f.Label, "", url.Values{"autocommit": {"0"}}), connections)
		t.Cleanup(pool.Close)
		locks := txlock.New(driver, txlock.WithTable(f.Table()))
		t.Cleanup(func() { require.NoError(t, locks.Close()) })
		onEach := func(text string) {
			var conns []*sql.Conn
			for i := range connections {
				conn, err := pool.DB.Conn(background)
				require.NoError(t, err)
				_, err = conn.ExecContext(background, strings.ReplaceAll(text, "?", strconv.Itoa(i)))
				require.NoError(t, err)
				conns = append(conns, conn)
			}
			for _, conn := range conns {
				require.NoError(t, conn.Close())
			}
		}
		onEach("INSERT INTO " + table + " VALUES (?)")
		eventually.True(t, "the holder is found", func() bool { // MariaDB's picture may be of a moment before
			holdings, err := locks.Inspect(background, f.Key("held"))
			require.NoError(t, err)
			return holdings[0].Holder.ID != ""
		})
		onEach("COMMIT")
		require.Equal(t, connections, f.Total(t, "SELECT COUNT(*) FROM "+table))
		require.NoError(t, held.Unlock(background))
	})
}

func leftover(t *testing.T, f *testbed.Fixture[*sql.Tx], locks *txlock.Locker[*sql.Tx], db *sql.DB,
	table, begin, when string,
) {
	f.AsAdmin(t, "DELETE FROM "+table)
	f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1, 10)")
	for _, statement := range []string{begin, "SELECT n FROM " + table, "INSERT INTO " + table + " VALUES (2, 0)"} {
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	f.AsAdmin(t, "UPDATE "+table+" SET n = 9 WHERE id = 1")
	fails := errors.New("fails")
	require.ErrorIs(t, locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
		n, err := f.Query(ctx, tx, "SELECT n FROM "+table+" WHERE id = 1")
		require.NoError(t, err)
		require.Equal(t, "9", n, when)
		require.NoError(t, f.Exec(ctx, tx, "UPDATE "+table+" SET n = 8"))
		return fails
	}), fails)
	require.Equal(t, 9, f.Total(t, "SELECT SUM(n) FROM "+table), when)
	require.Equal(t, 2, f.Total(t, "SELECT COUNT(*) FROM "+table), when)
}

// In a session without autocommit the lock behind an implicit commit would begin a transaction of
// its own, without what was done in the first. That is an error, too.
func TestEndedWithoutAutocommit(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		m := f.Locks.Mutex(f.Key("a"))
		for _, text := range []string{"SELECT 1", "CREATE TABLE " + f.Label + ".made (id int)", "COMMIT"} {
			tx := f.Begin(t, f.DSNFor(f.Label, "", url.Values{"autocommit": {"0"}}), 0)
			require.NoError(t, f.Exec(background, tx, text))
			if err := m.LockTx(background, tx); text == "SELECT 1" {
				require.NoError(t, err)
				f.Taken(t, f.Key("a"))
			} else {
				require.ErrorIs(t, err, txlock.ErrLost)
			}
			require.NoError(t, f.End(background, tx, true))
			f.Free(t, f.Key("a"))
		}
	})
}

// A miss is told at once at every isolation level of the caller's, although at SERIALIZABLE a plain
// SELECT waits for the holder.
func TestTryRowsWhenSerializable(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		table := f.MakeTable(t, "id int primary key")
		f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1)")
		locks, _ := callersPool(t, f, func(params map[string]string) {
			level := "transaction_isolation"
			if f.MariaDB {
				level = "tx_isolation"
			}
			params[level] = "'SERIALIZABLE'"
		})
		holder, err := f.Locks.Rows(table, "id", 1).Lock(background)
		require.NoError(t, err)
		defer func() { require.NoError(t, holder.Unlock(background)) }()
		start := time.Now()
		_, err = locks.Rows(table, "id", 1).TryLock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.Less(t, time.Since(start), 4*time.Second)
		_, err = locks.Rows(table, "id", 1, 2).TryLock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired, "one is held, and one is missing")
		_, err = locks.Rows(table, "id", 2).TryLock(background)
		require.ErrorIs(t, err, txlock.ErrNoRow)
	})
}

// DDL does not wait for an idle connection whose lock is over, also where its settings include
// autocommit=0. (On MySQL it waits for one that has committed: see commits in dialects/mysql.)
func TestNothingIsLeftForDDL(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		locks, _ := callersPool(t, f, func(params map[string]string) { params["autocommit"] = "0" })
		for _, fails := range []error{nil, errors.New("fails")} {
			if fails == nil && f.Kind == servers.MySQL {
				continue
			}
			table := f.MakeTable(t, "n int")
			require.Equal(t, fails, locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
				return fails
			}))
			patience, cancel := context.WithTimeout(background, 10*time.Second)
			_, err := f.Admin.ExecContext(patience, "DROP TABLE "+table)
			cancel()
			require.NoError(t, err)
		}
	})
}

// The error of a Do means that nothing is committed, also where the settings, which are restored
// together with the COMMIT, cannot be.
func TestCommitWithSettings(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		table := f.MakeTable(t, "n int")
		locks, db := callersPool(t, f, func(map[string]string) {})
		err := locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
			return f.Exec(ctx, tx, "SET @txlock_isolation = 'none'")
		})
		require.Equal(t, err == nil, f.Total(t, "SELECT COUNT(*) FROM "+table) == 1)
		require.NoError(t, locks.Mutex(f.Key("a")).Do(background, func(context.Context, *sql.Tx) error { return nil }))
		var left int
		require.NoError(t, db.QueryRow("SELECT @@autocommit <> 1 OR @txlock_isolation IS NOT NULL").Scan(&left))
		require.Zero(t, left)
	})
}

// A Once that fails between its look at the marker and its end leaves nothing in the session.
func TestNothingIsLeftOfOnce(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		f, table := testbed.NewFixtureWithTable(t, f.Engine, f.Client, txlock.WithSlots(64))
		require.NoError(t, f.Locks.Install(background))
		driver, pool := f.Connect(t, f.DSNFor(f.Label, "", nil), 1)
		t.Cleanup(pool.Close)
		locks := txlock.New(driver, txlock.WithTable(table))
		nothing := func(context.Context, *sql.Tx) error { return nil }
		for _, key := range []string{"a", "b"} {
			ran, err := locks.Once(key).Do(background, nothing)
			require.NoError(t, err)
			require.True(t, ran)
		}
		f.AsAdmin(t, "RENAME TABLE "+table+" TO "+table+"_gone")
		_, err := locks.Once("b").Do(background, nothing)
		f.AsAdmin(t, "RENAME TABLE "+table+"_gone TO "+table)
		if err != nil {
			require.ErrorIs(t, err, txlock.ErrNotInstalled)
		}
		var left int
		require.NoError(t, pool.DB.QueryRow("SELECT @txlock IS NOT NULL OR @txlock_isolation IS NOT NULL").Scan(&left))
		require.Zero(t, left)
	})
}
