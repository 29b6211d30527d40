package txlock_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/servers"
)

// through is the engine as clients of a pooler reach it.
func (e *engine) through(pooler *servers.Server) *engine {
	return &engine{
		Server: pooler, admin: e.admin, postgres: e.postgres, queued: e.queued, sessions: e.sessions,
		pollEvery: e.pollEvery, pooled: true,
	}
}

// TestPgBouncer runs every guarantee through PgBouncer in transaction mode, on the newest
// PostgreSQL: sessions of the server are shared between its clients, from one transaction to the
// next.
func TestPgBouncer(t *testing.T) {
	var newest *engine
	for _, e := range engines {
		if e.postgres {
			newest = e
		}
	}
	pooler, err := servers.StartPgBouncer(background, newest.Server, "default_pool_size=150", "max_client_conn=1000")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
	e := newest.through(pooler)
	t.Run(pgxOpened().name, func(t *testing.T) { guaranteed(t, e, pgxOpened(), pgxTest) })
	t.Run(postgresSQL[0].name, func(t *testing.T) { guaranteed(t, e, postgresSQL[0], sqlTest) })

	// What sessions of txlock set while they hold a lock, no other client may meet.
	var changed int
	db, err := sql.Open("pgx", pooler.DSN)
	require.NoError(t, err)
	defer db.Close()
	for range 20 {
		conn, err := db.Conn(background)
		require.NoError(t, err)
		defer conn.Close()
		tx, err := conn.BeginTx(background, nil) // pins one of the server's sessions
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		require.NoError(t, tx.QueryRow("SELECT COUNT(*) FROM pg_settings WHERE source = 'session' AND "+
			"name IN ('default_transaction_read_only', 'idle_in_transaction_session_timeout', "+
			"'client_connection_check_interval', 'lock_timeout') "+
			"AND setting <> reset_val").Scan(&changed))
		require.Zero(t, changed)
	}
}

// A pooler that does not track prepared statements is named in the error, and the simple protocol
// works through it.
func TestOldPgBouncer(t *testing.T) {
	for _, e := range engines {
		if e.Kind != servers.Postgres18 {
			continue
		}
		pooler, err := servers.StartPgBouncer(background, e.Server, "max_prepared_statements=0")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
		through := e.through(pooler)
		cycle := func(f *fixture[pgx.Tx]) error {
			lock, err := f.locks.Mutex(f.key("a")).Lock(background)
			if err != nil {
				return err
			}
			return lock.Unlock(background)
		}
		require.NoError(t, cycle(newFixture(t, through, pgxOpened())))
		// Another client, and the server's session that the first has prepared its statements in.
		require.ErrorContains(t, cycle(newFixture(t, through, pgxOpened())), "max_prepared_statements")
		require.NoError(t, cycle(newFixture(t, through, pgxOnPool("simple protocol"))))
	}
}
