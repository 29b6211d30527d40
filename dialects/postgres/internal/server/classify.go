package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/network"
	"github.com/txlock/txlock/internal/locktable"
)

// Classify adds to err what it means for a lock in request.
func Classify(err error, request dialects.Request) error {
	if errors.Is(err, ErrUnprepared) { // it is tried anew, in the end by pgx
		return err
	}
	switch State(err) {
	case LockNotAvailable, QueryCanceled:
		return fmt.Errorf("%w: %w", dialects.ErrNotAcquired, err)
	case DeadlockDetected:
		return fmt.Errorf("%w: %w", dialects.ErrDeadlock, err)
	case Serialization:
		return fmt.Errorf("%w: %w", dialects.ErrIsolation, err)
	case UnknownStatement, KnownStatement:
		return MixedUp(err)
	case UndefinedTable, UndefinedColumn, UndefinedSchema:
		if request.Slots > 0 || request.Ours {
			return locktable.NotInstalled(request.Table, err)
		}
	}
	if State(err) != "" && !Broken(err) && request.Slots == 0 && !request.Ours {
		return dialects.RefusedError{Err: err}
	}
	return err
}

// Ours is Classify for a statement on a table of txlock's own.
func Ours(err error, table string) error {
	return Classify(err, dialects.Request{Table: table, Ours: true})
}

// ErrUnprepared occurs when the server's statements are not those that the connection believes it
// has: somebody has had it forget them, a column has another type now, or a pooler has mixed up two
// clients. The transaction is to be begun anew.
var ErrUnprepared = errors.New("the connection's prepared statements have changed")

// MixedUp says what it means that a prepared statement is not as it was.
func MixedUp(err error) error {
	return fmt.Errorf("prepared statements were deallocated, or a pooler that shares the server's connections, and "+
		"does not track prepared statements, is in between; let it track them (PgBouncer 1.21 or later: "+
		"max_prepared_statements), or connect with default_query_exec_mode=simple_protocol: %w", err)
}

// mayPass are classes of SQLSTATEs that may pass by themselves, and single ones.
var mayPass = []string{
	"08",                            // connection exception
	"40",                            // transaction rollback
	"53",                            // insufficient resources: too many connections, say
	"57P",                           // operator intervention: the server stops, starts, ends a session
	"25006",                         // read only: a standby, or a primary that is about to be one
	"25P03",                         // the lease of a session has run out
	"25P04",                         // transaction_timeout
	LockNotAvailable, QueryCanceled, // a limit of the role's on a wait
}

// Passing does what dialects.Electorate promises, for errors of the server and of the way to it.
func Passing(err error) bool {
	if state := State(err); state != "" {
		return slices.ContainsFunc(mayPass, func(prefix string) bool { return strings.HasPrefix(state, prefix) })
	}
	var refused *pgconn.ConnectError
	return network.Failed(err) || errors.As(err, &refused) || errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, fencing.ErrNoRun)
}
