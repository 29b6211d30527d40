package guarantees

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// LockTxHolds shows that LockTx holds until the caller's transaction ends.
func LockTxHolds[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key")
	a, b := f.Key("a"), f.Key("b")
	f.Free(t, a, b) // reads the number of slots: LockTx would wait a second for that at most
	for _, commit := range []bool{true, false} {
		tx := f.Guest(t)
		require.NoError(t, f.Locks.Mutex(a).LockTx(background, tx))
		require.NoError(t, f.Locks.Mutex(b).TryLockTx(background, tx))
		require.NoError(t, f.Locks.Mutex(a, b).LockTx(background, tx), "the same session locks again")
		require.NoError(t, f.Exec(background, tx, "INSERT INTO "+table+" VALUES (1)"))
		f.Taken(t, a)
		f.Taken(t, b)
		require.NoError(t, f.End(background, tx, commit))
		f.Free(t, a, b)
		require.Equal(t, map[bool]int{true: 1, false: 1}[commit], f.Total(t, "SELECT COUNT(*) FROM "+table))
		if commit {
			f.AsAdmin(t, "DELETE FROM "+table)
			f.AsAdmin(t, "INSERT INTO "+table+" VALUES (2)")
		}
	}
}

// CallersTransaction shows that the caller's transaction stays usable after a missed try, a
// timeout, a cancel.
func CallersTransaction[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key")
	held, own := f.Key("held"), f.Key("own")
	holder := testbed.Lock(t, f.Locks.Mutex(held))

	tx := f.Guest(t)
	require.NoError(t, f.Locks.Mutex(own).LockTx(background, tx))
	require.NoError(t, f.Exec(background, tx, "INSERT INTO "+table+" VALUES (1)"))
	usable := func() {
		t.Helper()
		f.Taken(t, own)
		require.NoError(t, f.Exec(background, tx, "UPDATE "+table+" SET id = id + 1"))
	}
	require.ErrorIs(t, f.Locks.Mutex(held).TryLockTx(background, tx), txlock.ErrNotAcquired)
	usable()
	require.ErrorIs(t, f.Locks.Mutex(held, f.Key("free")).TryLockTx(background, tx), txlock.ErrNotAcquired)
	usable()
	err := f.Locks.Mutex(held).Within(50*time.Millisecond).LockTx(background, tx)
	testbed.ErrorIs(t, err, txlock.ErrNotAcquired, context.DeadlineExceeded)
	usable()
	ctx, cancel := context.WithCancel(background)
	failed := testbed.Go(func() error { return f.Locks.Mutex(held).LockTx(ctx, tx) })
	f.Waiters(t, 1)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	usable()
	require.Error(t, f.Locks.Rows(table+"_missing", "id", 1).LockTx(background, tx))
	usable()
	testbed.Unlock(t, holder)
	require.NoError(t, f.Locks.Mutex(held).LockTx(background, tx))
	f.Taken(t, held)
	require.NoError(t, f.End(background, tx, true))
	require.Equal(t, 6, f.Total(t, "SELECT id FROM "+table))
	f.Free(t, held, own)
}

// CallersSettings shows that the caller's settings are what they were.
func CallersSettings[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	holder := testbed.Lock(t, f.Locks.Mutex(f.Key("held")))
	defer func() { require.NoError(t, holder.Unlock(background)) }()

	read, change := "SELECT CONCAT(@@innodb_lock_wait_timeout, ' ', @@autocommit)", "SET innodb_lock_wait_timeout = 7"
	if f.Postgres {
		read = "SELECT current_setting('lock_timeout') || current_setting('transaction_isolation') || " +
			"current_setting('default_transaction_read_only') || " +
			"current_setting('application_name') || current_setting('client_connection_check_interval')"
		change = "SET LOCAL lock_timeout = '7s'"
	}
	for _, changed := range []bool{false, true} {
		tx := f.Guest(t)
		if changed {
			require.NoError(t, f.Exec(background, tx, change))
		}
		before := f.Read(t, tx, read)
		require.ErrorIs(t, f.Locks.Mutex(f.Key("held")).TryLockTx(background, tx), txlock.ErrNotAcquired)
		require.ErrorIs(t, f.Locks.Mutex(f.Key("held")).Within(30*time.Millisecond).LockTx(background, tx),
			txlock.ErrNotAcquired)
		require.NoError(t, f.Locks.Mutex(f.Key("a")).Within(time.Minute).LockTx(background, tx))
		require.NoError(t, f.Locks.Mutex(f.Key("b")).LockTx(background, tx))
		after := f.Read(t, tx, read)
		require.Equal(t, before, after)
		require.NoError(t, f.End(background, tx, true))
	}
	settingsOfPool(t, e, c)
	if f.Postgres { // a limit of the caller's own is kept as well
		tx := f.Guest(t)
		require.NoError(t, f.Exec(background, tx, "SET LOCAL lock_timeout = '30ms'"))
		err := f.Locks.Mutex(f.Key("held")).LockTx(background, tx)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, f.End(background, tx, true))
	}
}

// settingsOfPool shows that a connection comes back to a caller's pool with its settings, whatever
// ended the lock.
func settingsOfPool[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 1, "")
	if f.Postgres || f.Pool.DB == nil { // settings of PostgreSQL end with the transaction
		return
	}
	table := f.MakeTable(t, "n int", "(0)")
	read := func(on interface {
		QueryRowContext(context.Context, string, ...any) *sql.Row
	}, query string,
	) (text string) {
		require.NoError(t, on.QueryRowContext(background, query).Scan(&text))
		return text
	}
	const settings = "SELECT CONCAT_WS(' ', CONNECTION_ID(), @@autocommit, @@wait_timeout, " +
		"@@net_write_timeout, @@innodb_lock_wait_timeout, /*!80001 @@transaction_isolation */ /*M! @@tx_isolation */)"
	before := read(f.Pool.DB, settings)
	m := f.Locks.Mutex(f.Key("settings"))
	work := func(fails error) func() error {
		return func() error { return m.Do(background, func(context.Context, Tx) error { return fails }) }
	}
	for what, call := range map[string]func() error{
		"Unlock": func() error {
			lock := testbed.Lock(t, m)
			return lock.Unlock(background)
		},
		"commit": work(nil), "rollback": work(errWork),
		"what was done before": func() error {
			o := f.Locks.Once(f.OnceKey("settings", oncePrefix))
			_, first := o.Do(background, idle[Tx])
			_, second := o.Do(background, idle[Tx])
			return errors.Join(first, second)
		},
	} {
		if err := call(); err != nil {
			require.Equal(t, errWork, err, what)
		}
		require.Equal(t, before, read(f.Pool.DB, settings), what)
		// No variable shows the level of the next transaction.
		tx := must.Get(f.Pool.DB.BeginTx(background, nil))(t)
		t.Cleanup(func() { _ = tx.Rollback() }) // of a test that failed
		n := read(tx, "SELECT n FROM "+table)
		f.AsAdmin(t, "UPDATE "+table+" SET n = n + 1")
		require.Equal(t, n, read(tx, "SELECT n FROM "+table), "%s: a read is repeatable", what)
		require.NoError(t, tx.Rollback())
	}
}

// StaleSnapshot shows that a transaction that would read stale data is refused.
func StaleSnapshot[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	m := f.Locks.Mutex(f.Key("stale"))
	dsn := f.DSNFor(f.Label, "", nil)
	f.Free(t, f.Key("stale")) // as in lockTxHolds
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		tx := f.Begin(t, dsn, level)
		if f.Postgres {
			start := time.Now()
			holder := testbed.Lock(t, m)
			require.ErrorIs(t, m.Within(time.Minute).LockTx(background, tx), txlock.ErrIsolation)
			require.ErrorIs(t, m.TryLockTx(background, tx), txlock.ErrIsolation)
			require.Less(t, time.Since(start), 30*time.Second, "refused without waiting")
			testbed.Unlock(t, holder)
			require.NoError(t, f.Exec(background, tx, "SELECT 1"))
		} else {
			// InnoDB takes the snapshot at the first plain read, which comes after the lock here.
			table := f.MakeTable(t, "level int primary key, n int", "(1, 10)")
			require.NoError(t, m.TryLockTx(background, tx))
			f.AsAdmin(t, "UPDATE "+table+" SET n = 9")
			n, err := f.Query(background, tx, "SELECT n FROM "+table)
			if level == sql.LevelSerializable && e.RefusesOldSnapshots(t) { // it takes the snapshot with the lock
				require.ErrorContains(t, err, "Error 1020")
			} else {
				require.NoError(t, err)
				require.Equal(t, "9", n)
			}
			asAdminLater(t, f, tx, "DROP TABLE "+table)
			continue
		}
		require.NoError(t, f.End(background, tx, false))
		f.Free(t, f.Key("stale"))
	}
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelReadUncommitted} {
		tx := f.Begin(t, dsn, level)
		require.NoError(t, m.LockTx(background, tx))
		require.NoError(t, f.End(background, tx, false))
	}
}

// asAdminLater ends tx first: it would block the statement.
func asAdminLater[Tx any](t *testing.T, f *testbed.Fixture[Tx], tx Tx, query string) {
	t.Helper()
	require.NoError(t, f.End(background, tx, false))
	f.AsAdmin(t, query)
}

// EndedTransaction shows that a transaction of the caller's that has ended is an error.
func EndedTransaction[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	tx := f.Guest(t)
	require.NoError(t, f.End(background, tx, true))
	require.Error(t, f.Locks.Mutex(f.Key("ended")).LockTx(background, tx))
	require.Error(t, f.Locks.Mutex(f.Key("ended")).TryLockTx(background, tx))
	// Another transaction may have its connection by now.
	if pooled, ok := any(f).(*testbed.Fixture[pgx.Tx]); ok {
		endedOnPool(t, pooled)
	}
	var none Tx
	noTransaction(t, f, none)
	f.Free(t, f.Key("ended"))
	endedInside(t, f)
}

// noTransaction shows that each call that takes a transaction says that there is none.
func noTransaction[Tx any](t *testing.T, f *testbed.Fixture[Tx], none Tx) {
	t.Helper()
	m := f.Locks.Mutex(f.Key("ended"))
	held := testbed.Take(t, f.Locks.Claim(f.OnceKey("none", "claim:")), "me", time.Hour)
	require.ErrorContains(t, m.LockTx(background, none), "nil transaction")
	require.ErrorContains(t, m.TryLockTx(background, none), "nil transaction")
	_, err := f.Locks.Once(f.OnceKey("none", "once:")).DoTx(background, none)
	require.ErrorContains(t, err, "nil transaction")
	require.ErrorContains(t, held.LockTx(background, none), "nil transaction")
	require.NoError(t, held.Release(background))
}

// endedInside shows the same of a transaction that a statement of its own, or a deadlock, has
// ended, which its handle does not know. Nothing is locked, or marked: the server would do both at
// once, and for good.
func endedInside[Tx any](t *testing.T, f *testbed.Fixture[Tx]) {
	held := must.Get(f.Locks.Claim(f.OnceKey("ended", "claim:")).TryTake(background, "me", time.Hour))(t)
	table := makeDeadlockTable(t, f)
	ends := map[string]func(tx Tx){"deadlock": func(tx Tx) { _ = deadlock(t, f, background, tx, table) }}
	statements := []string{"COMMIT", "ROLLBACK"}
	if !f.Postgres { // where each commits implicitly
		statements = append(statements, "CREATE TABLE IF NOT EXISTS "+f.Label+".made (id int)",
			"ANALYZE TABLE "+table, "SET autocommit = 0; SET autocommit = 1", "SET autocommit = 0; COMMIT")
	}
	for _, text := range statements {
		ends[text] = func(tx Tx) {
			for _, statement := range strings.Split(text, "; ") {
				require.NoError(t, f.Exec(background, tx, statement))
			}
		}
	}
	for name, end := range ends {
		once := f.Locks.Once(f.OnceKey("ended", "once:"))
		for verb, call := range map[string]func(tx Tx) error{
			"LockTx": func(tx Tx) error { return f.Locks.Mutex(f.Key("ended")).LockTx(background, tx) },
			"TryLockTx": func(tx Tx) error {
				return f.Locks.Mutex(f.Key("ended"), f.Key("b")).TryLockTx(background, tx)
			},
			"LockTx of rows": func(tx Tx) error { return f.Locks.Rows(table, "id", 1).LockTx(background, tx) },
			"DoTx":           func(tx Tx) error { _, err := once.DoTx(background, tx); return err },
			"claim":          func(tx Tx) error { return held.LockTx(background, tx) },
		} {
			tx := f.Guest(t)
			require.NoError(t, f.Exec(background, tx, "UPDATE "+table+" SET n = n + 1 WHERE id = 1"))
			end(tx)
			err := call(tx)
			if f.Postgres && name == "deadlock" { // the server refuses all until the end
				require.Error(t, err, verb)
			} else {
				require.ErrorIs(t, err, txlock.ErrLost, "%s behind %s", verb, name)
				require.True(t, f.Postgres || strings.Contains(err.Error(), "the transaction has ended"), err)
			}
			f.Free(t, f.Key("ended"))
			_ = f.End(background, tx, true)
			require.False(t, testbed.IsDone(t, once), "%s behind %s", verb, name)
		}
	}
	require.NoError(t, held.Release(background))
}

// endedOnPool ends a transaction on a pool of one connection, begins another one there, and locks
// in the first.
func endedOnPool[Tx any](t *testing.T, f *testbed.Fixture[Tx]) {
	config := must.Get(pgxpool.ParseConfig(f.DSNFor(f.Label, "", nil)))(t)
	config.MaxConns = 1
	pool := must.Get(pgxpool.NewWithConfig(background, config))(t)
	defer pool.Close()
	ended := must.Get(pool.Begin(background))(t)
	require.NoError(t, ended.Rollback(background))
	first := make(chan error) // of the library's on that connection
	go func() { first <- txlock.New(postgres.New(pool), txlock.WithTable(f.Table())).Ping(background) }()
	pgxLocks := any(f.Locks).(*txlock.Locker[pgx.Tx])
	require.ErrorContains(t, pgxLocks.Mutex(f.Key("ended")).LockTx(background, (*pgxpool.Tx)(nil)), "nil transaction")
	require.ErrorIs(t, pgxLocks.Mutex(f.Key("ended")).LockTx(background, ended), pgx.ErrTxClosed)
	require.NoError(t, <-first)
	other := must.Get(pool.Begin(background))(t)
	require.ErrorIs(t, pgxLocks.Mutex(f.Key("ended")).LockTx(background, ended), pgx.ErrTxClosed)
	f.Free(t, f.Key("ended"))
	require.NoError(t, other.Rollback(background))
}
