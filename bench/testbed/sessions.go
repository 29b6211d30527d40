package testbed

import (
	"context"
	"database/sql"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/database"
)

// Sessions counts the sessions of a database that keep a connection of somebody's pool. A nil
// *Sessions counts none: other servers have none.
type Sessions struct {
	db    *sql.DB
	query string
}

// Sessions connects to a running database, or returns nil for another server.
func (t *Testbed) Sessions(ctx context.Context, server contest.Server) (*Sessions, error) {
	if !server.SQL() || t.Missing(server) != nil {
		return nil, nil
	}
	db, err := database.SQL(ctx, server, t.Address(server), 1)
	if err != nil {
		return nil, err
	}
	if server == contest.PostgreSQL {
		return &Sessions{db, busyOnPostgres}, nil
	}
	return &Sessions{db, busyOnMySQL}, nil
}

// A session is busy in a transaction, while it runs a statement, and as long as it has an advisory
// lock. The holder of a GET_LOCK that runs nothing cannot be told from an idle session.
const (
	busyOnPostgres = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> " +
		"pg_backend_pid() AND (xact_start IS NOT NULL OR pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory'))"
	busyOnMySQL = "SELECT count(*) FROM information_schema.processlist WHERE id <> connection_id() AND user NOT IN " +
		"('system user', 'event_scheduler') AND (command = 'Query' OR id IN (SELECT trx_mysql_thread_id FROM " +
		"information_schema.innodb_trx))"
)

// Busy returns the number of busy sessions.
func (s *Sessions) Busy(ctx context.Context) (busy int, err error) {
	if s == nil {
		return 0, nil
	}
	return busy, s.db.QueryRowContext(ctx, s.query).Scan(&busy)
}

// Close ends the connection.
func (s *Sessions) Close() error {
	if s == nil {
		return nil
	}
	return s.db.Close()
}
