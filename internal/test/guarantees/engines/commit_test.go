package engines

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// A commit that the server refuses is the error of the Do, whether it wrote by itself or in a
// nested Do, and with a lock that its work has left open. That of an Exec is no wait that has
// ended, though Within is over by then.
func TestDoTellsOfTheCommit(t *testing.T) {
	bothPostgres(t, refusedCommit[pgx.Tx], refusedCommit[*sql.Tx])
}

func refusedCommit[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int unique deferrable initially deferred")
	divides := table + "_divides" // raises the error that txlock itself provokes in another transaction
	f.AsAdmin(t, "CREATE FUNCTION "+divides+"() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN 1 / 0; END'")
	t.Cleanup(func() { f.AsAdmin(t, "DROP FUNCTION "+divides+" CASCADE") })
	f.AsAdmin(t, "CREATE CONSTRAINT TRIGGER divides AFTER INSERT ON "+table+" DEFERRABLE INITIALLY DEFERRED "+
		"FOR EACH ROW WHEN (NEW.id < 0) EXECUTE FUNCTION "+divides+"()")
	m := f.Locks.Mutex(f.Key("commit"))
	for values, says := range map[string]string{"(1), (1)": "unique", "(-1)": "division by zero"} {
		insert := func(ctx context.Context, tx Tx) error {
			return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES "+values)
		}
		for _, nested := range []bool{false, true} {
			err := m.Do(background, func(ctx context.Context, tx Tx) error {
				require.NoError(t, testbed.ErrorOf(f.Locks.Mutex(f.Key("left")).Lock(ctx)))
				if nested {
					return m.Do(ctx, insert)
				}
				return insert(ctx, tx)
			})
			require.ErrorContains(t, err, says)
			require.ErrorAs(t, err, new(*pgconn.PgError))
			require.NotErrorIs(t, err, txlock.ErrLost)
			require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
			f.Free(t, f.Key("commit"), f.Key("left"))
		}
	}
	_, err := m.Within(2*time.Second).Exec(background,
		txlock.Statement{SQL: "INSERT INTO " + table + " VALUES (1), (1)"},
		txlock.Statement{SQL: "SELECT pg_sleep(2.1)"})
	require.ErrorContains(t, err, "unique")
	require.NotErrorIs(t, err, txlock.ErrNotAcquired)
	require.NotErrorIs(t, err, txlock.ErrLost)
	f.Free(t, f.Key("commit"))
}

// A pooler that has lost the server says so in a FATAL error, also behind a COMMIT that took place.
func TestPoolerLosesServer(t *testing.T) {
	t.Parallel()
	e := testbed.NewestPostgres()
	proxy := testbed.Proxy(t, e)
	cut := e.Through(&servers.Server{Kind: e.Kind, Name: e.Name, DSN: e.DSNFor("", proxy.Addr(), nil)})
	f := testbed.NewFixture(t, cut.BehindPgBouncer(t), testbed.PgxOpened())
	table := f.MakeTable(t, "id int")
	m, insert := f.Locks.Mutex(f.Key("a")), "INSERT INTO "+table+" VALUES (1)"
	for i, call := range []func(slow func()) error{
		func(slow func()) error {
			return m.Do(background, func(ctx context.Context, tx pgx.Tx) error {
				defer slow()
				return f.Exec(ctx, tx, insert)
			})
		},
		func(slow func()) error {
			slow()
			return testbed.ErrorOf(m.Exec(background, txlock.Statement{SQL: insert}))
		},
	} {
		require.NoError(t, call(func() {}))
		failed := make(chan error, 1)
		go func() { failed <- call(func() { proxy.Delay(time.Second) }) }() // so that no answer comes
		eventually.True(t, "it is committed", func() bool { return f.Total(t, "SELECT COUNT(*) FROM "+table) == 2*i+2 })
		proxy.Cut()
		proxy.Delay(0)
		err := testbed.Receive(t, failed)
		require.ErrorContains(t, err, "08P01")
		require.ErrorIs(t, err, txlock.ErrUnknown)
	}
}

// A call in the work of a Do whose rows are open is an error that says so, and nothing is lost.
func TestCallsWhileRowsAreOpen(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		callsRefused(t, f, "close them, first", func(ctx context.Context, tx pgx.Tx) func() {
			rows := must.Get(tx.Query(ctx, "SELECT generate_series(1, 100000)"))(t)
			require.True(t, rows.Next())
			return rows.Close
		})
	})
}

func TestCallsWhileRowsAreOpenOnMySQL(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		callsRefused(t, f, "rows of a query of the work are still open", func(ctx context.Context, tx *sql.Tx) func() {
			rows := must.Get(tx.QueryContext(ctx, "SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3"))(t)
			require.True(t, rows.Next())
			return func() { require.NoError(t, rows.Close()) }
		})
	})
}

// callsRefused opens rows in the work of a Do, makes calls there, which must say so, and ends the
// rows.
func callsRefused[Tx any](t *testing.T, f *testbed.Fixture[Tx], says string,
	open func(context.Context, Tx) (end func()),
) {
	table := f.MakeTable(t, "id int primary key")
	outer, further := f.Locks.Mutex(f.Key("outer")), f.Locks.Mutex(f.Key("further"))
	require.NoError(t, outer.Do(background, func(ctx context.Context, tx Tx) error {
		end := open(ctx, tx)
		for name, call := range map[string]func() error{
			"Lock":         func() error { _, err := further.Lock(ctx); return err },
			"TryLock":      func() error { _, err := further.TryLock(ctx); return err },
			"Do":           func() error { return further.Do(ctx, idle[Tx]) },
			"Do of a held": func() error { return outer.Do(ctx, idle[Tx]) },
			"Exec": func() error {
				return testbed.ErrorOf(further.Exec(ctx, txlock.Statement{SQL: "DELETE FROM " + table}))
			},
		} {
			err := call()
			require.ErrorContains(t, err, says, name)
			require.NotErrorIs(t, err, txlock.ErrLost, name)
		}
		end()
		require.NoError(t, further.Do(ctx, idle[Tx]))
		f.Taken(t, f.Key("outer"))
		return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)")
	}))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
}

// Rows that the work leaves unread keep COMMIT from being sent.
func TestUnreadRowsAreNotACommit(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOnPool(""))
		table := f.MakeTable(t, "id int")
		err := f.Locks.Mutex(f.Key("unread")).Do(background, func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
			return testbed.ErrorOf(tx.Query(ctx, "SELECT generate_series(1, 100000)"))
		})
		require.ErrorIs(t, err, txlock.ErrLost)
		require.NotErrorIs(t, err, txlock.ErrUnknown)
		require.ErrorContains(t, err, "are still open")
		f.Transactions(t, 0) // the server has noticed the closed connection
		require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
	})
}

// Where the server rolls the whole transaction back when a wait was too long, that is a loss, and
// no lock that was missed.
func TestRollbackOnTimeout(t *testing.T) {
	eachOwnMySQL(t, func(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
		f := testbed.NewFixture(t, e, c)
		require.NoError(t, f.Locks.Install(background))
		table := f.MakeTable(t, "id int primary key, n int", "(1, 0), (2, 0)")
		held := testbed.Lock(t, f.Locks.Rows(table, "id", 1))
		for call, m := range map[string]*txlock.Mutex[*sql.Tx]{
			"LockTx": f.Locks.Rows(table, "id", 1), "TryLockTx": f.Locks.Rows(table, "id", 1),
		} {
			tx := f.Guest(t)
			require.NoError(t, f.Exec(background, tx, "UPDATE "+table+" SET n = n + 1 WHERE id = 2"))
			lock, want := m.LockTx, txlock.ErrLost
			if call == "TryLockTx" {
				if lock = m.TryLockTx; e.Kind == servers.MySQL { // NOWAIT is an error of its own there
					want = txlock.ErrNotAcquired
				}
			}
			begun := time.Now()
			require.ErrorIs(t, lock(background, tx), want, call)
			require.Less(t, time.Since(begun), 20*time.Second)
			require.NoError(t, f.End(background, tx, true))
		}
		testbed.Unlock(t, held)
	}, "--innodb-rollback-on-timeout=ON", "--innodb-lock-wait-timeout=1")
}
