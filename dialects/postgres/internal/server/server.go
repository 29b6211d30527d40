// Package server reads the answers of PostgreSQL, whichever client library has received them:
// booleans, errors by their SQLSTATEs, and what those mean for a lock.
package server

import (
	"cmp"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATEs (manual, appendix A) that mean something to a lock.
const (
	DivisionByZero   = "22012" // proofSQL raises it on purpose
	InvalidText      = "22P02" // failSQL raises it on purpose
	NoTransaction    = "25P01"
	AbortedBefore    = "25P02"
	NotSupported     = "0A000"
	UnknownSavepoint = "3B001"
	Serialization    = "40001"
	DeadlockDetected = "40P01"
	UnknownStatement = "26000" // prepared, as the client library believes
	KnownStatement   = "42P05"
	NoPrivilege      = "42501"
	SyntaxError      = "42601" // also several statements where one is prepared
	UndefinedColumn  = "42703"
	UndefinedTable   = "42P01"
	UndefinedSchema  = "3F000"
	LockNotAvailable = "55P03" // NOWAIT, and lock_timeout
	QueryCanceled    = "57014" // our interrupt, and statement_timeout
)

// Broken tells whether an error of a statement means that the session is gone. After an error from
// the server it lives on unless the error is fatal, and also when nothing was sent.
func Broken(err error) bool {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return false
	case errors.As(err, &pg):
		severity := cmp.Or(pg.SeverityUnlocalized, pg.Severity) // pgpool-II sends the latter alone
		return severity == "FATAL" || severity == "PANIC"
	case State(err) != "": // of another driver
		return slices.ContainsFunc(fatal, func(prefix string) bool { return strings.HasPrefix(State(err), prefix) })
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

// State is the SQLSTATE of an error of the server. Drivers have two ways to tell it.
func State(err error) string {
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

// Said is the error of the server in err, without what we have said of it.
func Said(err error) error {
	var server stated
	if errors.As(err, &server) {
		return server
	}
	return err
}

// IsTrue reads a boolean in text, in binary, or as database/sql prints it.
func IsTrue(value string) bool { return value == "t" || value == "\x01" || value == "true" }
