package postgres

import (
	"errors"
	"fmt"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/internal/locktable"
)

// classify adds to err what it means for a lock in request.
func classify(err error, request dialects.Request) error {
	if errors.Is(err, client.ErrUnprepared) { // it is tried anew, in the end by pgx
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
		return client.MixedUp(err)
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
