package anydriver

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"

	"github.com/lib/pq"
	"github.com/ngrok/sqlmw"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// lib/pq prepares a statement that has arguments in a round trip of its own. Outside a transaction
// a pooler then may execute what another client has prepared. What the library sends there has no
// arguments, so that a wait can be interrupted among busy neighbours.
func TestInterruptAmongNeighbours(t *testing.T) {
	t.Parallel()
	e := testbed.NewestPostgres()
	// One session for the holder, one for the waiter, and one for all the others. lib/pq needs
	// no pooler that tracks prepared statements.
	pooler, err := servers.StartPgBouncer(background, e.Server, "default_pool_size=3", "max_prepared_statements=0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
	refusals := make(chan error, 100) // of statements that interrupt others
	seen := interceptor{before: func(string) {}, after: func(query string, err error) {
		if err != nil && strings.Contains(query, "pg_cancel_backend") {
			refusals <- err
		}
	}}
	f := testbed.NewFixture(t, e.Through(pooler), testbed.SQLOnPool("witnessed", func(dsn string) (*sql.DB, error) {
		return open(sqlmw.Driver(&pq.Driver{}, seen), dsn)
	}, onPostgres))
	busy(t, f.DSN+"&binary_parameters=yes") // with it lib/pq takes one round trip
	m := f.Locks.Mutex(f.Key("a"))
	holder := testbed.Lock(t, m)
	cancelled := func(wait func(context.Context) error) {
		ctx, cancel := context.WithCancel(background)
		ended := testbed.Go(func() error { return wait(ctx) })
		f.Waiters(t, 1)
		cancel()
		require.ErrorIs(t, testbed.Receive(t, ended), txlock.ErrNotAcquired)
	}
	for range 3 {
		tx := must.Get(f.Pool.DB.Begin())(t)
		cancelled(func(ctx context.Context) error { return m.LockTx(ctx, tx) })
		require.NoError(t, testbed.ErrorOf(tx.Exec("SELECT 1")), "the connection is kept")
		require.NoError(t, tx.Rollback())
		cancelled(func(ctx context.Context) error { return testbed.ErrorOf(m.Lock(ctx)) })
	}
	require.NoError(t, holder.Unlock(background))
	require.Empty(t, refusals)
}

// busy has four clients run a statement with an argument all the time, without a transaction.
func busy(t *testing.T, dsn string) {
	t.Helper()
	db := must.Get(sql.Open("postgres", dsn))(t)
	ctx, cancel := context.WithCancel(background)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := db.Exec("SELECT $1::text", "mine"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
		require.NoError(t, db.Close())
	})
}

// A COMMIT that the server refuses is the error of a Once as well, also where that error is the one
// that txlock itself provokes in another transaction.
func TestOnceTellsOfTheCommit(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.AllPostgres() {
		for _, o := range Postgres {
			t.Run(e.Name+"/"+o.Name, func(t *testing.T) {
				t.Parallel()
				f := testbed.NewFixture(t, e, testbed.SQLOnPool(o.Name, o.Open, onPostgres))
				table := f.MakeTable(t, "id int")
				divides := table + "_divides"
				f.AsAdmin(t, "CREATE FUNCTION "+divides+"() RETURNS trigger LANGUAGE plpgsql AS "+
					"'BEGIN RETURN 1 / 0; END'")
				t.Cleanup(func() { f.AsAdmin(t, "DROP FUNCTION "+divides+" CASCADE") })
				f.AsAdmin(t, "CREATE CONSTRAINT TRIGGER divides AFTER INSERT ON "+table+
					" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "+divides+"()")
				once := f.Locks.Once(f.Key("once"))
				_, err := once.Do(background, func(ctx context.Context, tx *sql.Tx) error {
					return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)")
				})
				require.ErrorContains(t, err, "division by zero")
				require.NotErrorIs(t, err, txlock.ErrLost)
				require.False(t, testbed.IsDone(t, once))
			})
		}
	}
}
