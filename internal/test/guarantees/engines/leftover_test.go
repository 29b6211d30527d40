package engines

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/locktable"
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
		holder := testbed.Lock(t, f.Locks.Rows(table, "id", 1))
		defer func() { require.NoError(t, holder.Unlock(background)) }()
		start := time.Now()
		testbed.Misses(t, locks.Rows(table, "id", 1))
		require.Less(t, time.Since(start), 4*time.Second)
		_, err := locks.Rows(table, "id", 1, 2).TryLock(background)
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

// Leader keeps no lock on the record, and reads no old one, also where the caller's sessions begin
// a transaction with every statement, and keep its snapshot.
func TestLeaderWithoutAutocommit(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		locks, db := callersPool(t, f, func(params map[string]string) { params["autocommit"] = "0" })
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

// Locks work where the server refuses what it would otherwise only warn of, and where it reads NOT
// in another way.
func TestStrictMode(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		for _, mode := range []string{"TRADITIONAL", "HIGH_NOT_PRECEDENCE"} {
			locks, _ := callersPool(t, f, func(params map[string]string) { params["sql_mode"] = "'" + mode + "'" })
			require.NoError(t, locks.Mutex(f.Key("k")).Do(background, idle[*sql.Tx]))
			require.NoError(t, locks.Mutex(f.Key("k")).Shared().Do(background, idle[*sql.Tx]))
			require.NoError(t, locks.Semaphore(f.Key("k"), 2).Do(background, idle[*sql.Tx]))
			// The first also asks for the format of the binary log.
			for _, key := range []string{f.Key(mode), f.Key(mode + " again")} {
				for _, want := range []bool{true, false} {
					worked := false
					ran, err := locks.Once(key).Do(background, func(context.Context, *sql.Tx) error {
						worked = true
						return nil
					})
					require.NoError(t, err)
					require.Equal(t, want, ran)
					require.Equal(t, want, worked)
				}
			}
		}
	})
}

// What work sets in its session is set anew for the next lock on that connection. With autocommit
// left on, each lock would end with the statement that takes it.
func TestSettingsOfWork(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL[1:], func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		const settings = "SELECT CONCAT_WS(' ', @@autocommit + 0, @@wait_timeout, " +
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

// Work that goes to another database leaves it to no other: there the name of the lock table means
// another table.
func TestDatabaseOfWork(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL[1:], func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		locks := f.Another(t, 1)
		for _, change := range []string{"DO 0", "USE information_schema", "/* */use`mysql`", "DO 0; USE mysql"} {
			for _, fails := range []error{nil, errWork} {
				err := locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
					database, err := f.Query(ctx, tx, "SELECT DATABASE()")
					require.NoError(t, err)
					require.Equal(t, f.Label, database, "before %s", change)
					_ = f.Exec(ctx, tx, change) // several statements are an error for some clients
					return fails
				})
				require.ErrorIs(t, err, fails)
			}
		}
		require.NoError(t, locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
			database, err := f.Query(ctx, tx, "SELECT DATABASE()")
			require.Equal(t, f.Label, database)
			return err
		}))
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

// Two Lockers on one driver have their own leases, whatever the work before has set.
func TestLeasesOfOneDriver(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		driver, err := postgres.Open(background, f.DSNFor(f.Label, "", nil)+"&pool_max_conns=1")
		require.NoError(t, err)
		brief := txlock.New(driver, txlock.WithTable(f.Table()), txlock.WithLease(7*time.Second))
		long := txlock.New(driver, txlock.WithTable(f.Table()), txlock.WithLease(time.Minute))
		t.Cleanup(func() { require.NoError(t, brief.Close()) }) // and the driver
		has := func(locks *txlock.Locker[pgx.Tx], lease string) {
			require.NoError(t, locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx pgx.Tx) error {
				shown, err := f.Query(ctx, tx, "SELECT concat_ws(' ', "+
					"current_setting('idle_in_transaction_session_timeout'), current_setting('tcp_user_timeout'), "+
					"current_setting('client_connection_check_interval'))")
				require.NoError(t, err)
				require.Equal(t, lease, shown)
				return f.Exec(ctx, tx, "SET idle_in_transaction_session_timeout = 0")
			}))
		}
		for range 2 {
			has(brief, "7s 7000 500ms")
			has(brief, "7s 7000 500ms")
			has(long, "1min 60000 500ms")
		}
	})
}

// A wait for the table of the markers, which DDL has, ends as any other.
func TestOnceBesideDDL(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		f, table := testbed.NewInstalled(t, f.Engine, f.Client, txlock.WithSlots(64))
		once := f.Locks.Once("k")
		_, err := once.Do(background, idle[*sql.Tx])
		require.NoError(t, err)
		ddl, err := f.Admin.Conn(background)
		require.NoError(t, err)
		defer ddl.Close()
		_, err = ddl.ExecContext(background, "LOCK TABLES "+table+"_once WRITE")
		require.NoError(t, err)
		_, err = once.Within(50*time.Millisecond).Do(background, idle[*sql.Tx])
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = ddl.ExecContext(background, "UNLOCK TABLES")
		require.NoError(t, err)
	})
}
