package txlockotel

import (
	"context"
	"errors"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/txlock/txlock"
)

// outcome is how a wait ended, or what was granted.
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
	return timeout // a limit of the session's own, in a LockTx
}

// ofHold is the outcome of a lock whose holding ended with err.
func ofHold(err error) outcome {
	if err == nil {
		return released
	}
	return ofError(err)
}

// ofError tells errors apart. A deadlock comes first: on MySQL and MariaDB the session is lost with
// it. A deadline comes before a cancellation: where Within ends a wait, database/sql may report
// that its statement was cancelled.
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

// bad tells whether the outcome is an error.
func (o outcome) bad() bool {
	switch o {
	case timeout, deadlock, lost, failed:
		return true
	}
	return false
}

// sentinels by which errors are named; the first that matches, so in the order of ofError.
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

// sqlState is what the server has called an error, where the client library's error says so: pgx's
// does.
func sqlState(err error) string {
	var server interface{ SQLState() string }
	if errors.As(err, &server) {
		return server.SQLState()
	}
	return ""
}
