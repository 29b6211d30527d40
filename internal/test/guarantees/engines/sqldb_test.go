package engines

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// The *sql.Tx of a Do takes what was prepared on the caller's sql.DB.
func TestStatementsOfDB(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		c := testbed.MySQLSQL[0]
		if e.Postgres {
			c = testbed.PostgresSQL[0]
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			f := testbed.NewFixture(t, e, c)
			const text = "SELECT 1"
			ofDB := must.Get(f.Pool.DB.Prepare(text))(t)
			t.Cleanup(func() { require.NoError(t, ofDB.Close()) })
			require.NoError(t, f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(t, testbed.ErrorOf(tx.StmtContext(ctx, ofDB).ExecContext(ctx)))
				require.NoError(t, testbed.ErrorOf(must.Get(tx.PrepareContext(ctx, text))(t).ExecContext(ctx)))
				return f.Exec(ctx, tx, text)
			}))
		})
	}
}

// Into on a sql.DB of pgx's driver has what Scan of database/sql has.
func TestIntoScansAsDatabaseSQL(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PostgresSQL[0])
		for _, query := range []string{"SELECT 7", "SELECT date '2026-11-26'", "SELECT true", "SELECT 1.5::numeric"} {
			for _, into := range []func() any{
				func() any { return new(string) }, func() any { return new([]byte) }, func() any { return new(any) },
				func() any { return new(sql.NullString) },
			} {
				want, got := into(), into()
				require.NoError(t, f.Pool.DB.QueryRowContext(background, query).Scan(want), "%s into %T", query, want)
				_, err := f.Locks.Mutex(f.Key("a")).Exec(background, txlock.Statement{SQL: query, Into: []any{got}})
				require.NoError(t, err, "%s into %T", query, got)
				require.Equal(t, want, got, query)
			}
		}
	})
}

// A statement that the work has left behind does not hold up the end of its Do for long, which then
// closes the connection.
func TestStatementLeftBehind(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PostgresSQL[0])
		left, returned := make(chan error, 1), time.Time{}
		err := f.Locks.Mutex(f.Key("a")).Do(background, func(_ context.Context, tx *sql.Tx) error {
			go func() { left <- f.Exec(background, tx, "SELECT pg_sleep(60)") }()
			eventually.True(t, "it sleeps", func() bool {
				return f.Total(t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND "+
					"split_part(application_name, '#', 1) = '"+f.Label+"'") == 1
			})
			returned = time.Now()
			return errWork
		})
		require.Less(t, time.Since(returned), 30*time.Second)
		testbed.ErrorIs(t, err, errWork, txlock.ErrLost)
		require.Error(t, testbed.Receive(t, left))
		f.Transactions(t, 0)
		f.Free(t, f.Key("a"))
	})
}

// noUndo is a connection that fails to roll back to a savepoint, once it is told to.
type noUndo struct {
	*stdlibConn
	fails *atomic.Bool
}

type stdlibConn = stdlib.Conn // whose name does not hide its method Conn

func (c noUndo) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.fails.Load() && strings.Contains(query, "rollback to") {
		return nil, errors.New("it does not roll back")
	}
	return c.stdlibConn.ExecContext(ctx, query, args)
}

// undoless connects so.
type undoless struct {
	driver.Connector
	fails atomic.Bool
}

func (u *undoless) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := u.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return noUndo{conn.(*stdlib.Conn), &u.fails}, nil
}

// A try in a caller's transaction that cannot be rolled back to its savepoint is an error of its
// own, and no miss: the transaction may have got one of the keys.
func TestFailedUndo(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PostgresSQL[0])
		held := testbed.Lock(t, f.Locks.Mutex(f.Key("held")))
		config := must.Get(pgx.ParseConfig(f.DSNFor(f.Label, "", nil)))(t)
		connector := &undoless{Connector: stdlib.GetConnector(*config)}
		db := sql.OpenDB(connector)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		locks := txlock.New(postgres.NewSQL(db), txlock.WithTable(f.Table()))
		for _, fail := range []bool{false, true} { // the first tries out the driver, too
			connector.fails.Store(fail)
			tx := must.Get(db.Begin())(t)
			err := locks.Mutex(f.Key("held"), f.Key("free")).TryLockTx(background, tx)
			require.NoError(t, tx.Rollback())
			require.Equal(t, fail, errors.Is(err, txlock.ErrLost), "%v", err)
			require.Equal(t, !fail, errors.Is(err, txlock.ErrNotAcquired), "%v", err)
		}
		testbed.Unlock(t, held)
	})
}

// A Do runs at READ COMMITTED, and writes, whatever the defaults of its session are: that is said
// before pgx prepares anything, which would be a query, behind which the server takes no level of
// the transaction. So it is when pgx prepares anew what it has dropped, for statements of the work.
func TestDefaultsOfSessions(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		for _, c := range append(testbed.PostgresSQL, testbed.SQLFromPool()) {
			f, table := testbed.NewTable(t, e, c, "level text")
			locks := f.AnotherBy(t, f.DSNFor(f.Label, "", url.Values{
				"default_transaction_isolation": {"serializable"}, "default_transaction_read_only": {"on"},
				"statement_cache_capacity": {"16"},
			}), 1)
			for range 3 {
				require.NoError(t, locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
					err := f.Exec(ctx, tx, "INSERT INTO "+table+" SELECT current_setting('transaction_isolation')")
					for i := 0; err == nil && i < 20; i++ {
						_, err = tx.ExecContext(ctx, fmt.Sprintf("SELECT %d + $1::int", i), i)
					}
					return err
				}), c.Name)
			}
			require.Equal(t, 3, f.Total(t, "SELECT count(*) FROM "+table+" WHERE level = 'read committed'"))
		}
	})
}

// A server that ends each session behind its login is an error, and is not asked without end.
func TestConnectionsThatAreBornDead(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PostgresSQL[0])
		config := must.Get(pgxpool.ParseConfig(f.DSNFor(f.Label, "", nil)))(t)
		config.MaxConns = 4
		logins := 0
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			logins++
			_, err := f.Admin.ExecContext(ctx, "SELECT pg_terminate_backend($1, 5000)", conn.PgConn().PID())
			return err
		}
		pool := must.Get(pgxpool.NewWithConfig(background, config))(t)
		t.Cleanup(pool.Close)
		db := stdlib.OpenDBFromPool(pool)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		ctx, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		_, onPool := txlock.New(postgres.New(pool), txlock.WithTable(f.Table())).Mutex("a").Lock(ctx)
		_, onDB := txlock.New(postgres.NewSQL(db), txlock.WithTable(f.Table())).Mutex("a").Lock(ctx)
		for _, err := range []error{onPool, onDB} {
			require.ErrorContains(t, err, "connect")
		}
		require.NoError(t, ctx.Err())
		require.Less(t, logins, 400)
	})
}
