package guarantees

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// SettingsEnd shows that no setting of the library's outlives its transaction on a connection of
// PostgreSQL, however that ends.
func SettingsEnd[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	if !e.Postgres {
		return // see settingsOfPool
	}
	f := testbed.NewSizedFixture(t, e, c, 1, "")
	table := f.MakeTable(t, "id int unique deferrable initially deferred")
	before := settingsAtLogin(t, f)
	for name, ending := range endings(t, f, table) {
		ending()
		require.Equal(t, before, sessionSettings(t, f), "after %s", name)
	}
}

// endings are ways in which a session of the library's ends, by what they are.
func endings[Tx any](t *testing.T, f *testbed.Fixture[Tx], table string) map[string]func() {
	m := f.Locks.Mutex(f.Key("a"))
	do := func(work func(ctx context.Context, tx Tx) error) error { return m.Do(background, work) }
	send := func(statement string) func() error {
		return func() error { return do(func(ctx context.Context, tx Tx) error { return f.Exec(ctx, tx, statement) }) }
	}
	failed := func(call func() error) func() { return func() { require.Error(t, call()) } }
	return map[string]func(){
		"success":                func() { require.NoError(t, send("SELECT 1")()) },
		"a statement that fails": failed(send("SELECT 1 / 0")),
		"an error": failed(func() error {
			return do(func(context.Context, Tx) error { return errWork })
		}),
		"a refused COMMIT":               failed(send("INSERT INTO " + table + " VALUES (1), (1)")),
		"a COMMIT of the work":           failed(send("COMMIT")),
		"a ROLLBACK of the work":         failed(send("ROLLBACK")),
		"a COMMIT and BEGIN of the work": failed(send("COMMIT; BEGIN")),
		"a panic": func() {
			require.Panics(t, func() { _ = do(func(context.Context, Tx) error { panic("boom") }) })
		},
		"a kill": failed(func() error {
			return do(func(_ context.Context, tx Tx) error {
				f.KillSession(t, tx)
				return nil
			})
		}),
		"a cancel": func() {
			ctx, cancel := context.WithCancel(background)
			result := testbed.Go(func() error {
				return m.Do(ctx, func(ctx context.Context, tx Tx) error {
					return f.Exec(ctx, tx, "SELECT pg_sleep(60)")
				})
			})
			eventually.True(t, "it sleeps", func() bool {
				return f.Total(t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND "+
					"split_part(application_name, '#', 1) = '"+f.Label+"'") == 1
			})
			cancel()
			require.Error(t, testbed.Receive(t, result))
		},
		"an Unlock": func() { testbed.Unlock(t, testbed.Lock(t, m)) },
		"a permit":  func() { testbed.Unlock(t, testbed.Lock(t, f.Locks.Semaphore(f.Key("permits"), 1))) },
		"a wait that was cancelled": func() {
			held := testbed.Lock(t, testbed.NewSizedFixture(t, f.Engine, f.Client, 1, "").Locks.Mutex(f.Key("a")))
			ctx, cancel := context.WithCancel(background)
			waits := testbed.Go(func() error { _, err := m.Lock(ctx); return err })
			f.Waiters(t, 1)
			cancel()
			require.ErrorIs(t, testbed.Receive(t, waits), context.Canceled)
			testbed.Unlock(t, held)
		},
	}
}

// showSettings leaves out those of PL/pgSQL, which a session has once that was used in it: behind a
// pooler by whomever.
const showSettings = "SELECT string_agg(name || ' = ' || setting, E'\n' ORDER BY name) FROM pg_settings " +
	"WHERE name NOT LIKE 'transaction%' AND name NOT LIKE 'plpgsql.%'"

// settingsAtLogin are those of a connection as its client library makes it.
func settingsAtLogin[Tx any](t *testing.T, f *testbed.Fixture[Tx]) (settings string) {
	t.Helper()
	if f.Pool.DB != nil {
		return sessionSettings(t, f)
	}
	conn, err := pgx.Connect(background, f.DSNFor(f.Label, "", nil))
	require.NoError(t, err)
	defer conn.Close(background)
	require.NoError(t, conn.QueryRow(background, showSettings).Scan(&settings))
	return settings
}

// sessionSettings are those of the only connection of a pool, outside any transaction.
func sessionSettings[Tx any](t *testing.T, f *testbed.Fixture[Tx]) (settings string) {
	t.Helper()
	if f.Pool.DB != nil {
		require.NoError(t, f.Pool.DB.QueryRow(showSettings).Scan(&settings))
		return settings
	}
	// Nobody else shows a connection of postgres.Open.
	_ = f.Locks.Mutex(f.Key("shows")).Do(background, func(ctx context.Context, tx Tx) error {
		conn := any(tx).(pgx.Tx).Conn()
		require.NoError(t, testbed.ErrorOf(conn.Exec(ctx, "ROLLBACK")))
		return conn.QueryRow(ctx, showSettings).Scan(&settings)
	})
	require.NotEmpty(t, settings)
	return settings
}
