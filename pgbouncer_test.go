package txlock_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/servers"
)

// TestPgBouncer runs every guarantee through PgBouncer in transaction mode, on the newest PostgreSQL: sessions of the server
// are shared between its clients, from one transaction to the next.
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
	e := &engine{
		Server: pooler, admin: newest.admin, postgres: true, queued: newest.queued, sessions: newest.sessions,
		pollEvery: newest.pollEvery, sessionsEvery: newest.sessionsEvery,
	}
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
			"name IN ('default_transaction_read_only', 'idle_in_transaction_session_timeout', 'client_connection_check_interval', 'lock_timeout') "+
			"AND setting <> reset_val").Scan(&changed))
		require.Zero(t, changed)
	}
}
