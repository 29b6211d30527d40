package postgres

import (
	"errors"
	"fmt"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/internal/locktable"
)

// classify adds to err what it means for a lock in request.
func classify(err error, request dialects.Request) error {
	if errors.Is(err, errUnprepared) { // it is tried anew, in the end by pgx
		return err
	}
	switch server.State(err) {
	case server.LockNotAvailable, server.QueryCanceled:
		return fmt.Errorf("%w: %w", dialects.ErrNotAcquired, err)
	case server.DeadlockDetected:
		return fmt.Errorf("%w: %w", dialects.ErrDeadlock, err)
	case server.Serialization:
		return fmt.Errorf("%w: %w", dialects.ErrIsolation, err)
	case server.UnknownStatement, server.KnownStatement:
		return mixedUp(err)
	case server.UndefinedTable, server.UndefinedColumn, server.UndefinedSchema:
		if request.Slots > 0 || request.Ours {
			return locktable.NotInstalled(request.Table, err)
		}
	}
	if server.State(err) != "" && !server.Broken(err) && request.Slots == 0 && !request.Ours {
		return dialects.RefusedError{Err: err}
	}
	return err
}

// mixedUp says what it means that a prepared statement is not as it was.
func mixedUp(err error) error {
	return fmt.Errorf("prepared statements were deallocated, or a pooler that shares the server's connections, and "+
		"does not track prepared statements, is in between; let it track them (PgBouncer 1.21 or later: "+
		"max_prepared_statements), or connect with default_query_exec_mode=simple_protocol: %w", err)
}

// lost says that the session has lost the transaction that took the locks.
func lost(err error) error {
	if err == nil || errors.Is(err, dialects.ErrLost) {
		return err
	}
	return fmt.Errorf("%w: %w", dialects.ErrLost, err)
}
