package engines

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// A caller may have the server forget all prepared statements between the calls of the library, and
// give a column another type. On a pool of pgx's one call fails then. Nothing of what is sent
// inside a transaction notices: nested locks, LockTx, renewals.
func TestForgottenInTransactions(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		t.Run("pgxpool", func(t *testing.T) {
			t.Parallel()
			f := testbed.NewFixture(t, e, testbed.PgxOnPool(""))
			config := must.Get(pgxpool.ParseConfig(f.DSNFor(f.Label, "", nil)))(t)
			config.MaxConns = 1
			pool := must.Get(pgxpool.NewWithConfig(background, config))(t)
			t.Cleanup(pool.Close)
			forgets(t, f, txlock.New(postgres.New(pool), txlock.WithLease(shortLease), txlock.WithTable(e.Table())),
				func() (pgx.Tx, error) { return pool.Begin(background) },
				func(text string) error { return testbed.ErrorOf(pool.Exec(background, text)) })
		})
		t.Run("sql.DB", func(t *testing.T) {
			t.Parallel()
			f := testbed.NewFixture(t, e, testbed.PostgresSQL[0])
			db := must.Get(sql.Open("pgx", f.DSNFor(f.Label, "", nil)))(t)
			db.SetMaxOpenConns(1)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			forgets(t, f, txlock.New(postgres.NewSQL(db), txlock.WithLease(shortLease), txlock.WithTable(e.Table())),
				func() (*sql.Tx, error) { return db.Begin() },
				func(text string) error { return testbed.ErrorOf(db.Exec(text)) })
		})
	})
}

// forgets goes through everything, and again after each way to spoil what is prepared. Exec and
// begin are of the pool of locks, which has one connection.
func forgets[Tx any](t *testing.T, f *testbed.Fixture[Tx], locks *txlock.Locker[Tx], begin func() (Tx, error),
	exec func(string) error,
) {
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	table := f.MakeTable(t, "id int primary key", "(7)")
	rows := locks.Rows(table, "id", 7)
	all := func(after string) {
		require.NoError(t, locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, _ Tx) error {
			for _, m := range []*txlock.Mutex[Tx]{locks.Mutex(f.Key("nested")), rows} {
				lock, err := m.Lock(ctx)
				if err != nil {
					return err
				}
				if err := lock.Unlock(ctx); err != nil {
					return err
				}
			}
			return testbed.ErrorOf(locks.Once(f.Key("once"+after)).Do(ctx, idle[Tx]))
		}), after)
		tx := must.Get(begin())(t)
		require.NoError(t, locks.Mutex(f.Key("tx")).LockTx(background, tx), after)
		require.NoError(t, rows.LockTx(background, tx), after)
		require.NoError(t, f.End(background, tx, false))
	}
	all("nothing")
	for _, spoil := range []string{"discard all", "deallocate all", "alter table " + table + " alter id type bigint"} {
		require.NoError(t, exec(spoil))
		_ = locks.Mutex(f.Key("outer")).Do(background, idle[Tx])
		all(spoil)
	}
	for range 2 { // the first renewal prepares
		_ = locks.Mutex(f.Key("outer")).Do(background, idle[Tx])
		lock := testbed.Lock(t, locks.Mutex(f.Key("held")))
		session := f.Look(t, f.Key("held"))[0].Holder.ID
		first := horizonOf(t, f, session).xid
		eventually.Every(t, "a renewal", testbed.PollEvery, func() bool {
			require.NoError(t, context.Cause(lock.Context()))
			return horizonOf(t, f, session).xid != first
		})
		testbed.Unlock(t, lock)
		require.NoError(t, exec("discard all"))
	}
}

// All works in each of pgx's modes, also where it keeps one statement or none. A LockTx that fails
// leaves the transaction usable, whatever pgx asks the server about in front.
func TestUsableInEachMode(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
			for _, kept := range []string{"512", "1", "0"} {
				if kept == "0" && strings.HasPrefix(mode, "cache") {
					continue // pgx refuses
				}
				t.Run(mode+" "+kept, func(t *testing.T) {
					f := testbed.NewFixture(t, e, testbed.PgxOnPool(""))
					usable(t, f, f.DSNFor(f.Label, "", url.Values{
						"default_query_exec_mode":  {mode},
						"statement_cache_capacity": {kept}, "description_cache_capacity": {kept},
					}))
				})
			}
		}
	})
}

func usable(t *testing.T, f *testbed.Fixture[pgx.Tx], dsn string) {
	table := f.MakeTable(t, "id int primary key, n int", "(7, 0)")
	locks := f.AnotherBy(t, dsn, 1)
	m, nested, rows := locks.Mutex(f.Key("a")), locks.Mutex(f.Key("nested")), locks.Rows(table, "id", 7)
	add := txlock.Statement{SQL: "UPDATE " + table + " SET n = n + $1", Args: []any{1}, Rows: 1}
	for range 2 {
		testbed.Unlock(t, testbed.Lock(t, m))
		require.NoError(t, m.Do(background, func(ctx context.Context, _ pgx.Tx) error {
			return nested.Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, add.SQL, add.Args...)
				return errors.Join(err, testbed.Cycle(ctx, rows))
			})
		}))
		require.NoError(t, testbed.ErrorOf(m.Exec(background, add)))
	}
	require.Equal(t, 4, f.Total(t, "SELECT n FROM "+table))

	tx := f.Begin(t, dsn, sql.LevelDefault)
	require.Error(t, locks.Rows(table, "missing", 7).LockTx(background, tx))
	require.NoError(t, rows.LockTx(background, tx))
	require.NoError(t, m.LockTx(background, tx))
	require.NoError(t, f.Exec(background, tx, "UPDATE "+table+" SET n = 0"))
	require.NoError(t, f.End(background, tx, true))
}
