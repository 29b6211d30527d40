package engines

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/locktable"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// callersPool is a pool of one connection, whose sessions begin with these settings, and a Locker on
// it.
func callersPool(t *testing.T, f *testbed.Fixture[*sql.Tx], settings url.Values) (
	*txlock.Locker[*sql.Tx], *sql.DB,
) {
	driver, pool := f.Connect(t, f.DSNFor(f.Label, "", settings), 1)
	t.Cleanup(pool.Close)
	locks := txlock.New(driver, txlock.WithTable(f.Table()))
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	return locks, pool.DB
}

// onCallersPools runs test with each client that locks on a pool of the caller's.
func onCallersPools(t *testing.T, test func(*testing.T, *testbed.Fixture[*sql.Tx])) {
	onMySQL(t, testbed.MySQLSQL[:1], test)
}

// A transaction that a connection of the pool was left with is committed before the lock, as
// BeginTx would do. So work reads what is current, and what fails in it is undone alone.
func TestLeftoverTransaction(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		table := f.MakeTable(t, "id int primary key, n int")
		for _, begin := range []string{"SET autocommit = 0", "BEGIN"} {
			locks, db := callersPool(t, f, nil)
			for _, use := range []string{"first", "second"} { // the first also reads the number of slots
				leftover(t, f, locks, db, table, begin, use+" use after "+begin)
				_, err := db.Exec("SET autocommit = 1")
				require.NoError(t, err)
			}
		}
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

// Leader keeps no lock on the record, and reads no old one, also where the caller's sessions begin
// a transaction with every statement, and keep its snapshot.
func TestLeaderWithoutAutocommit(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		locks, db := callersPool(t, f, url.Values{"autocommit": {"0"}})
		onlooker := locks.Election(f.Key("election"), "onlooker")
		for range 3 {
			var number int64
			require.NoError(t, f.Locks.Election(f.Key("election"), "me").Lead(background,
				func(_ context.Context, term int64) error {
					number = term
					leader, err := onlooker.Leader(background)
					require.NoError(t, err)
					require.Equal(t, term, leader.Term)
					return nil
				}))
			_, err := onlooker.Leader(background)
			require.ErrorIs(t, err, txlock.ErrNoLeader)
			f.Transactions(t, 0)
			var n int64 // the snapshot of a transaction that the caller leaves open
			leaders := testbed.TableOf(f.Engine, "txlock_slots_leaders")
			require.NoError(t, db.QueryRow("SELECT MAX(term) FROM "+leaders).Scan(&n))
			require.GreaterOrEqual(t, n, number)
		}
	})
}

// What a look at a marker reads is committed, also where the caller's sessions read what is not.
func TestOnceWhereReadsAreDirty(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		level := "transaction_isolation"
		if f.MariaDB {
			level = "tx_isolation"
		}
		locks, _ := callersPool(t, f, url.Values{level: {"'READ-UNCOMMITTED'"}})
		key, tx := f.OnceKey("dirty", "once:"), f.Guest(t)
		first, err := f.Locks.Once(key).DoTx(background, tx)
		require.NoError(t, err)
		require.True(t, first)
		_, done, err := locks.Once(key).Done(background)
		require.NoError(t, err)
		require.False(t, done)
		require.NoError(t, f.End(background, tx, true))
	})
}

// Locks work where the server refuses what it would otherwise only warn of, and where it reads NOT
// in another way.
func TestStrictMode(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		for _, mode := range []string{"TRADITIONAL", "HIGH_NOT_PRECEDENCE"} {
			locks, _ := callersPool(t, f, url.Values{"sql_mode": {"'" + mode + "'"}})
			require.NoError(t, locks.Mutex(f.Key("k")).Do(background, idle[*sql.Tx]))
			require.NoError(t, locks.Mutex(f.Key("k")).Shared().Do(background, idle[*sql.Tx]))
			require.NoError(t, locks.Semaphore(f.Key("k"), 2).Do(background, idle[*sql.Tx]))
			for _, want := range []bool{true, false} {
				ran, err := locks.Once(f.Key(mode)).Do(background, idle[*sql.Tx])
				require.NoError(t, err)
				require.Equal(t, want, ran)
			}
		}
	})
}

// What work sets in its session is set anew for the next lock on that connection. With autocommit
// left on, each lock would end with the statement that takes it. In another database the name of the
// lock table means another table.
func TestSettingsOfWork(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL[1:], func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		const settings = "SELECT CONCAT_WS(' ', DATABASE(), @@autocommit + 0, @@wait_timeout, " +
			"@@innodb_lock_wait_timeout, /*!80001 @@transaction_isolation, @@transaction_read_only + 0 */ " +
			"/*M! @@tx_isolation, @@tx_read_only + 0 */)"
		read := func(change string) (found string) {
			_ = f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) (err error) {
				found, err = f.Query(ctx, tx, settings)
				return errors.Join(err, f.Exec(ctx, tx, change))
			})
			return found
		}
		f.AsAdmin(t, "CREATE PROCEDURE "+f.Label+".silent() SET autocommit = 1")
		before := read("DO 0")
		for _, change := range []string{
			"SET autocommit = 1", "/* as ORMs do */ SET @@autocommit = 1", "CALL silent()", "DO 0; SET autocommit = 1",
			"SET SESSION wait_timeout = 28800", "SET innodb_lock_wait_timeout = 1", "SET SESSION TRANSACTION READ ONLY",
			"SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
			"USE information_schema", "/* */use`mysql`", "DO 0; USE mysql",
		} {
			require.Equal(t, before, read(change))
			lock, err := f.Locks.Mutex(f.Key("a")).Lock(background)
			require.NoError(t, err, change)
			f.Taken(t, f.Key("a"))
			testbed.Unlock(t, lock)
			require.Equal(t, before, read("DO 0"), change)
		}
	})
}

// The record of a leader is written by a statement that commits by itself. When the context ends in
// the middle of it, the caller's connection has its settings back, or is closed.
func TestRecordGivesSettingsBack(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		driver, pool := f.Connect(t, f.DSNFor(f.Label, "", nil), 2)
		t.Cleanup(pool.Close)
		found, err := locktable.Find(background, driver, f.Table())
		require.NoError(t, err)
		of, hash := found.Kinds.Leaders, testbed.HashOf(f.Key("election"))
		_, err = driver.Run(background, of.Rows.With(hash, ""))
		require.NoError(t, err)
		settings := func() (of [2]string) { // a cancel takes another connection for a moment
			for i := range of {
				conn, err := pool.DB.Conn(background)
				require.NoError(t, err)
				defer conn.Close()
				require.NoError(t, conn.QueryRowContext(background, "SELECT CONCAT_WS(' ', @@autocommit, "+
					"@@wait_timeout, @@net_write_timeout, @@innodb_lock_wait_timeout, "+
					"/*!80001 @@transaction_isolation */ /*M! @@tx_isolation */)").Scan(&of[i]))
			}
			return of
		}
		before, writer := settings(), f.Guest(t)
		for cut := 40 * time.Microsecond; cut < 4*time.Millisecond; cut += 40 * time.Microsecond {
			if cut == 2*time.Millisecond { // from here on the statement waits
				leaders := testbed.TableOf(f.Engine, "txlock_slots_leaders")
				require.NoError(t, f.Exec(background, writer, "UPDATE "+leaders+
					" SET term = 0, identity = 'x' WHERE hash = '"+hash+"'"))
			}
			ctx, cancel := context.WithTimeout(background, cut)
			_, err := driver.Run(ctx, of.Write.With(cut.Microseconds(), "me", hash))
			cancel()
			require.True(t, err != nil || cut < 2*time.Millisecond)
			require.Equal(t, before, settings(), "cut after %v", cut)
		}
		require.NoError(t, f.End(background, writer, false))
	})
}
