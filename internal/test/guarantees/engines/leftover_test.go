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
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// callersPool is a pool of one connection, whose sessions begin with these settings, and a Locker
// on it.
func callersPool(t *testing.T, f *testbed.Fixture[*sql.Tx], settings url.Values) (*txlock.Locker[*sql.Tx], *sql.DB) {
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
				database.Exec(t, db, "SET autocommit = 1")
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
		database.Exec(t, db, statement)
	}
	f.AsAdmin(t, "UPDATE "+table+" SET n = 9 WHERE id = 1")
	fails := errors.New("fails")
	require.ErrorIs(t, locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
		n := must.Get(f.Query(ctx, tx, "SELECT n FROM "+table+" WHERE id = 1"))(t)
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
					require.Equal(t, term, must.Get(onlooker.Leader(background))(t).Term)
					return nil
				}))
			require.ErrorIs(t, testbed.ErrorOf(onlooker.Leader(background)), txlock.ErrNoLeader)
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
		require.True(t, must.Get(f.Locks.Once(key).DoTx(background, tx))(t))
		require.False(t, testbed.IsDone(t, locks.Once(key)))
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
				require.Equal(t, want, must.Get(locks.Once(f.Key(mode)).Do(background, idle[*sql.Tx]))(t))
			}
		}
	})
}

// What work sets in its session is set anew for the next lock on that connection. With autocommit
// left on, each lock would end with the statement that takes it. In another database the name of
// the lock table means another table.
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
		found := must.Get(locktable.Find(background, driver, f.Table()))(t)
		of, hash := found.Kinds.Leaders, testbed.HashOf(f.Key("election"))
		require.NoError(t, testbed.ErrorOf(driver.Run(background, of.Rows.With(hash, ""))))
		settings := func() (of [2]string) { // a cancel takes another connection for a moment
			for i := range of {
				conn := must.Get(pool.DB.Conn(background))(t)
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

// Locks of the server's that work takes, and leaves behind, belong to the session. No connection
// goes back to the pool with one, whether the work fails or forgets. The server is one of its own:
// some of them stop all of it.
func TestWorkKeepsNothing(t *testing.T) { eachOwnMySQL(t, keepsNothing) }

func keepsNothing(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 1, "")
	table := f.MakeTable(t, "id int auto_increment primary key")
	takes := []string{
		"LOCK TABLES " + table + " WRITE", "LOCK TABLES " + table + " READ", "FLUSH TABLES WITH READ LOCK",
		"FLUSH TABLES " + table + " WITH READ LOCK",
	}
	if e.MariaDB {
		takes = append(takes, "BACKUP STAGE START")
	}
	if c.Name != testbed.MySQLSQL[0].Name { // what ends no transaction is seen on a pool of Open alone
		takes = append(takes, "SELECT GET_LOCK('"+f.Label+"', 1)", "HANDLER "+table+" OPEN",
			"DELETE FROM "+table+" WHERE GET_LOCK('"+f.Label+"', 1) = 0")
		if e.MariaDB {
			takes = append(takes, "BACKUP LOCK "+table)
		} else {
			takes = append(takes, "LOCK INSTANCE FOR BACKUP")
		}
	}
	insert := "INSERT INTO " + table + " VALUES ()"
	fails := errors.New("fails")
	other := must.Get(f.Admin.Conn(background))(t)
	defer other.Close()
	database.Exec(t, other, "SET lock_wait_timeout = 2")
	require.ErrorIs(t, f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(f.Exec(ctx, tx, insert), f.Exec(ctx, tx, "SAVEPOINT txlock"), fails)
	}), fails)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table), "a savepoint of the library's name keeps nothing")
	for _, take := range takes {
		for _, forgets := range []bool{true, false} {
			err := f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
				if err := f.Exec(ctx, tx, insert); err != nil {
					return err
				}
				if err := f.Exec(ctx, tx, take); err != nil || forgets {
					return err
				}
				return fails
			})
			require.True(t, forgets || errors.Is(err, fails), "%s: %v", take, err)
			free(t, f, other, insert, take)
		}
		_, _ = f.Locks.Mutex(f.Key("a")).Exec(background, txlock.Statement{SQL: take})
		free(t, f, other, insert, take)
	}
}

// free shows that nobody has a lock of the server's, and that the next call of the pool works.
func free(t *testing.T, f *testbed.Fixture[*sql.Tx], other *sql.Conn, insert, behind string) {
	t.Helper()
	made := "TABLE " + f.Label + ".made"
	for _, statement := range []string{insert, "CREATE " + made + " (id int)", "DROP " + made} {
		require.NoError(t, testbed.ErrorOf(other.ExecContext(background, statement)), behind)
	}
	var got bool
	get := "SELECT GET_LOCK('" + f.Label + "', 2) AND RELEASE_LOCK('" + f.Label + "')"
	require.NoError(t, other.QueryRowContext(background, get).Scan(&got))
	require.True(t, got, behind)
	_, err := f.Locks.Mutex(f.Key("a")).Exec(background, txlock.Statement{SQL: insert, Rows: 1})
	require.NoError(t, err, behind)
}

// A goroutine that the work has left behind rolls its transaction back while the Do commits: one of
// them is first.
func TestHandleLeftBehind(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		table, locks := f.MakeTable(t, "id int primary key"), f.Another(t, 1)
		committed := 0
		for i := range 100 {
			rolledBack := make(chan struct{})
			err := locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO "+table+" VALUES (?)", i)
				go func() {
					defer close(rolledBack)
					_ = tx.Rollback()
				}()
				return err
			})
			if err == nil {
				committed++
			} else {
				require.ErrorIs(t, err, txlock.ErrLost)
			}
			<-rolledBack
		}
		require.Equal(t, committed, f.Total(t, "SELECT COUNT(*) FROM "+table))
	})
}

// A server that was restarted gives the numbers of its sessions again. What ends the session of
// work that is given up ends no other.
func TestNoStrangerIsEnded(t *testing.T) {
	eachOwnMySQL(t, func(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
		f := testbed.NewFixture(t, e, c)
		require.NoError(t, f.Locks.Install(background))
		strangers := make([]*sql.Conn, 100)
		require.Error(t, f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, e.Kill())
			require.NoError(t, e.Restart(background))
			pool := must.Get(sql.Open("mysql", e.DSN))(t)
			t.Cleanup(func() { _ = pool.Close() })
			for i := range strangers {
				strangers[i] = must.Get(pool.Conn(background))(t)
				t.Cleanup(func() { _ = strangers[i].Close() })
			}
			return nil
		}))
		for _, stranger := range strangers {
			require.NoError(t, stranger.PingContext(background))
		}
	})
}
