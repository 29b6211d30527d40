package engines

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/tracelog"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// On a connection of pgx's the library's statements are prepared as pgx prepares any.
func TestPreparedStatements(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		t.Run("once", func(t *testing.T) { preparesOnce(t, f) })
		t.Run("forgotten", func(t *testing.T) { forgetsStatements(t, f) })
		t.Run("traced", func(t *testing.T) { tracedStatements(t, f) })
	})
}

// onPool is a Locker on a pool of one connection.
func onPool(t *testing.T, f *testbed.Fixture[pgx.Tx], address string, change func(*pgx.ConnConfig)) (
	*pgxpool.Pool, *txlock.Locker[pgx.Tx],
) {
	t.Helper()
	config := must.Get(pgxpool.ParseConfig(f.DSNFor(f.Label, address, nil)))(t)
	config.MaxConns = 1
	change(config.ConnConfig)
	pool := must.Get(pgxpool.NewWithConfig(background, config))(t)
	t.Cleanup(pool.Close)
	locks := txlock.New(postgres.New(pool))
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	require.NoError(t, locks.Mutex(f.Key("other")).Do(background, idle[pgx.Tx]))
	return pool, locks
}

// statements counts those that the server keeps for the only connection of pool.
func statements(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(background, "select count(*) from pg_prepared_statements where "+
		"statement not like '%pg_prepared_statements%'").Scan(&n))
	return n
}

// preparesOnce shows that later calls prepare nothing, also of other keys.
func preparesOnce(t *testing.T, f *testbed.Fixture[pgx.Tx]) {
	pool, locks := onPool(t, f, "", func(*pgx.ConnConfig) {})
	do := func(key string) {
		m := locks.Mutex(f.Key(key))
		require.NoError(t, m.Do(background, idle[pgx.Tx]))
		testbed.Unlock(t, testbed.Lock(t, m))
	}
	do("first")
	before := statements(t, pool)
	require.Positive(t, before)
	for i := range 10 {
		do(fmt.Sprint(i))
	}
	require.Equal(t, before, statements(t, pool))
	table := f.MakeTable(t, "id int primary key")
	for range 10 {
		require.ErrorContains(t, testbed.ErrorOf(locks.Rows(table, "id", "no number").Lock(background)), "no number")
	}
	require.LessOrEqual(t, statements(t, pool), before+3, "of the rows' two and those of the lock")
}

// forgetsStatements shows that a caller who has the server forget all prepared statements, past
// pgx, gets an error once. In the work of a Do, pgx may.
func forgetsStatements(t *testing.T, f *testbed.Fixture[pgx.Tx]) {
	for _, forget := range []string{"deallocate all", "discard all"} {
		pool, locks := onPool(t, f, "", func(*pgx.ConnConfig) {})
		m := locks.Mutex(f.Key("forgotten"))
		exec := func() error { return testbed.ErrorOf(m.Exec(background, txlock.Statement{SQL: "SELECT 1", Rows: 1})) }
		lock := func() error {
			lock, err := m.Lock(background)
			if err != nil {
				return err
			}
			f.Taken(t, f.Key("forgotten"))
			return lock.Unlock(background)
		}
		for _, call := range []func() error{exec, lock} {
			require.NoError(t, call())
			require.NoError(t, testbed.ErrorOf(pool.Exec(background, forget)))
			require.ErrorContains(t, call(), "deallocated")
			require.NoError(t, call())
		}
		f.Free(t, f.Key("forgotten"))
		pool.Close()
	}
	_, locks := onPool(t, f, "", func(*pgx.ConnConfig) {})
	table := f.MakeTable(t, "n int")
	for range 2 {
		require.NoError(t, locks.Mutex(f.Key("forgotten")).Do(background, func(ctx context.Context, tx pgx.Tx) error {
			if err := tx.Conn().DeallocateAll(ctx); err != nil {
				return err
			}
			return testbed.ErrorOf(tx.Exec(ctx, "INSERT INTO "+table+" VALUES (1)"))
		}))
	}
	require.Equal(t, 2, f.Total(t, "SELECT count(*) FROM "+table))
	// In SQL, pgx does not know.
	do := func(forget string) error {
		return locks.Mutex(f.Key("forgotten")).Do(background, func(ctx context.Context, tx pgx.Tx) error {
			return testbed.ErrorOf(tx.Exec(ctx, forget, pgx.QueryExecModeSimpleProtocol))
		})
	}
	require.ErrorContains(t, do("deallocate all"), "deallocated")
	require.NoError(t, do("select 1"))
}

// tracedStatements shows that a tracer of the caller's sees what is sent on its connection.
func tracedStatements(t *testing.T, f *testbed.Fixture[pgx.Tx]) {
	sent := make(chan string, 1000)
	note := func(_ context.Context, _ tracelog.LogLevel, _ string, data map[string]any) {
		sent <- fmt.Sprint(data["sql"])
	}
	_, locks := onPool(t, f, "", func(config *pgx.ConnConfig) {
		config.Tracer = &tracelog.TraceLog{Logger: tracelog.LoggerFunc(note), LogLevel: tracelog.LogLevelTrace}
	})
	testbed.Unlock(t, testbed.Lock(t, locks.Mutex(f.Key("traced"))))
	var texts string
	for len(sent) > 0 {
		texts += <-sent + "\n"
	}
	for _, part := range []string{"begin", "for update", "rollback"} {
		require.Contains(t, texts, part)
	}
}
