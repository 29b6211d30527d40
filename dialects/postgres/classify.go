package postgres

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/locktable"
)

// SQLSTATEs (manual, appendix A) that mean something to a lock.
const (
	divisionByZero   = "22012" // proofSQL raises it on purpose
	invalidText      = "22P02" // failSQL raises it on purpose
	noTransaction    = "25P01"
	abortedBefore    = "25P02"
	notSupported     = "0A000"
	unknownSavepoint = "3B001"
	serialization    = "40001"
	deadlockDetected = "40P01"
	unknownStatement = "26000" // prepared, as the client library believes
	knownStatement   = "42P05"
	noPrivilege      = "42501"
	syntaxError      = "42601" // also several statements where one is prepared
	undefinedColumn  = "42703"
	undefinedTable   = "42P01"
	undefinedSchema  = "3F000"
	lockNotAvailable = "55P03" // NOWAIT, and lock_timeout
	queryCanceled    = "57014" // our interrupt, and statement_timeout
)

// classify adds to err what it means for a lock in request.
func classify(err error, request dialects.Request) error {
	if errors.Is(err, errUnprepared) { // it is tried anew, in the end by pgx
		return err
	}
	switch sqlState(err) {
	case lockNotAvailable, queryCanceled:
		return fmt.Errorf("%w: %w", dialects.ErrNotAcquired, err)
	case deadlockDetected:
		return fmt.Errorf("%w: %w", dialects.ErrDeadlock, err)
	case serialization:
		return fmt.Errorf("%w: %w", dialects.ErrIsolation, err)
	case unknownStatement, knownStatement:
		return mixedUp(err)
	case undefinedTable, undefinedColumn, undefinedSchema:
		if request.Slots > 0 || request.Ours {
			return locktable.NotInstalled(request.Table, err)
		}
	}
	if sqlState(err) != "" && !broken(err) && request.Slots == 0 && !request.Ours {
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

// broken tells whether an error of a statement means that the session is gone. After an error from
// the server it lives on unless the error is fatal, and also when nothing was sent.
func broken(err error) bool {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return false
	case errors.As(err, &pg):
		severity := cmp.Or(pg.SeverityUnlocalized, pg.Severity) // pgpool-II sends the latter alone
		return severity == "FATAL" || severity == "PANIC"
	case sqlState(err) != "": // of another driver
		return slices.ContainsFunc(fatal, func(prefix string) bool { return strings.HasPrefix(sqlState(err), prefix) })
	case errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone): // the caller's transaction, not the session
		return false
	}
	return errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, sql.ErrConnDone) || !pgconn.SafeToRetry(err)
}

// fatal are classes of SQLSTATEs behind which the server ends the session, and single ones.
var fatal = []string{
	"08",    // connection exception
	"57P",   // the server stops, or ends a session
	"25P03", // idle_in_transaction_session_timeout: the lease
	"25P04", // transaction_timeout
}

// sqlState is the SQLSTATE of an error of the server. Drivers have two ways to tell it.
func sqlState(err error) string {
	if err == nil {
		return ""
	}
	var stated stated // pgx, lib/pq
	if errors.As(err, &stated) {
		return stated.SQLState()
	}
	var fielded interface{ Field(byte) string } // pgdriver of bun
	if errors.As(err, &fielded) {
		return fielded.Field('C')
	}
	return ""
}

// stated is an error of the server, which has a SQLSTATE.
type stated interface {
	error
	SQLState() string
}

// serverError is the error of the server in err, without what we have said of it.
func serverError(err error) error {
	var server stated
	if errors.As(err, &server) {
		return server
	}
	return err
}
