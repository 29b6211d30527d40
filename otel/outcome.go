package txlockotel

import (
	"context"
	"errors"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/txlock/txlock"
)

// outcome is how a wait or a lock ended.
type outcome string

const (
	acquired  outcome = "acquired"
	missed    outcome = "missed"
	released  outcome = "released"
	cancelled outcome = "cancelled"
	timeout   outcome = "timeout"
	deadlock  outcome = "deadlock"
	lost      outcome = "lost"
	failed    outcome = "error"
)

// ofWait is the outcome of a call whose wait ended with err.
func ofWait(err error, try bool) outcome {
	how := ofError(err)
	switch {
	case err == nil:
		return acquired
	case how != failed || !errors.Is(err, txlock.ErrNotAcquired):
		return how
	case try:
		return missed
	}
	return timeout // a limit of the session, in a LockTx
}

// ofHold is the outcome of a lock that ended with err.
func ofHold(err error) outcome {
	if err == nil {
		return released
	}
	return ofError(err)
}

// ofError classifies an error. Deadlock comes first, because on MySQL and MariaDB the session is
// lost with it. Deadline comes before cancellation: when Within ends a wait, database/sql may
// report that its statement was cancelled.
func ofError(err error) outcome {
	switch {
	case errors.Is(err, txlock.ErrDeadlock):
		return deadlock
	case errors.Is(err, txlock.ErrLost):
		return lost
	case errors.Is(err, context.DeadlineExceeded):
		return timeout
	case errors.Is(err, context.Canceled):
		return cancelled
	}
	return failed
}

// bad reports whether the outcome is an error.
func (o outcome) bad() bool {
	switch o {
	case timeout, deadlock, lost, failed:
		return true
	}
	return false
}

// sentinels give errors their names. The first that matches counts, so they are in the order of
// ofError.
var sentinels = []struct {
	err  error
	name string
}{
	{txlock.ErrDeadlock, "txlock.ErrDeadlock"},
	{txlock.ErrLost, "txlock.ErrLost"},
	{txlock.ErrPanicked, "txlock.ErrPanicked"},
	{txlock.ErrNoRow, "txlock.ErrNoRow"},
	{txlock.ErrNotInstalled, "txlock.ErrNotInstalled"},
	{txlock.ErrIsolation, "txlock.ErrIsolation"},
	{txlock.ErrUnsafeEngine, "txlock.ErrUnsafeEngine"},
	{txlock.ErrUpgrade, "txlock.ErrUpgrade"},
	{txlock.ErrInsideLock, "txlock.ErrInsideLock"},
	{txlock.ErrNotAcquired, "txlock.ErrNotAcquired"},
	{txlock.ErrNotHeld, "txlock.ErrNotHeld"},
	{context.DeadlineExceeded, "context.DeadlineExceeded"},
}

// name is the error.type of an error, and a description that names no key.
func name(err error) (errorType, description string) {
	for _, sentinel := range sentinels {
		if errors.Is(err, sentinel.err) {
			return sentinel.name, sentinel.err.Error()
		}
	}
	if state := sqlState(err); state != "" {
		return state, "SQLSTATE " + state
	}
	errorType = semconv.ErrorType(err).Value.AsString()
	return errorType, errorType
}

// sqlState is the SQLSTATE of an error, if the error of the client library tells it, as that of pgx
// does.
func sqlState(err error) string {
	var server interface{ SQLState() string }
	if errors.As(err, &server) {
		return server.SQLState()
	}
	return ""
}
