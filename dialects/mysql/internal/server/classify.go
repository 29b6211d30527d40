package server

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/network"
	"github.com/txlock/txlock/internal/locktable"
)

// Classify adds to err what it means for a lock in request.
func Classify(err error, request dialects.Request) error {
	switch Number(err) {
	case LockWaitTimeout, QueryInterrupted, StatementTimeout, QueryTimeout, LockNowait:
		return fmt.Errorf("%w: %w", dialects.ErrNotAcquired, err)
	case LockDeadlock, RowChanged:
		return fmt.Errorf("%w: the server rolled the whole transaction back: %w", dialects.ErrDeadlock, err)
	case OnlyStatements:
		return fmt.Errorf("%w: the server's binlog_format is STATEMENT, which takes REPEATABLE READ: %w",
			dialects.ErrIsolation, err)
	case NoSuchTable, UnknownColumn, UnknownDatabase:
		if request.Slots > 0 || request.Ours {
			return locktable.NotInstalled(request.Table, err)
		}
	case 0, ServerShutdown, ConnectionKilled, SessionKilled:
		return err // no answer, or none that this session outlives
	}
	if request.Slots == 0 && !request.Ours {
		return dialects.RefusedError{Err: err}
	}
	return err
}

// Ours is Classify for a statement on a table of txlock's own.
func Ours(err error, table string) error {
	return Classify(err, dialects.Request{Table: table, Ours: true})
}

// Lost says that the session has lost the transaction that took the locks.
func Lost(err error) error {
	if err == nil || errors.Is(err, dialects.ErrLost) {
		return err
	}
	if Number(err) == NoSuchSavepoint {
		return fmt.Errorf("%w: the transaction that took the lock ended before its work did, by a deadlock, COMMIT, "+
			"ROLLBACK or DDL; what came after it is not committed: %w", dialects.ErrLost, err)
	}
	return fmt.Errorf("%w: %w", dialects.ErrLost, err)
}

// Aborted tells whether the transaction has ended with an error that says so in words alone.
// Aurora answers once, on a connection that goes on: "The last transaction was aborted due to Zero
// Downtime Restart. Please retry." (or Patch). Of any other error without a number of its own
// nobody knows whether the transaction goes on.
func Aborted(err error) bool { return Number(err) == UnknownError }

// Interrupted tells whether somebody, or a limit, has ended the statement and nothing else.
func Interrupted(err error) bool {
	switch Number(err) {
	case QueryInterrupted, StatementTimeout, QueryTimeout:
		return true
	}
	return false
}

// Broken tells whether the client library has given the connection up, or has found there what
// nobody asked for: before it closes a session that was idle for too long, MySQL sends an error.
func Broken(err error) bool {
	for _, gone := range []error{
		mysql.ErrInvalidConn, driver.ErrBadConn, sql.ErrConnDone,
		mysql.ErrBusyBuffer, mysql.ErrPktSync, mysql.ErrMalformPkt,
	} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}

// Passing does what dialects.Electorate promises, for errors of the server and of the way to it.
func Passing(err error) bool {
	switch Number(err) {
	case TooManyConnections, ServerShutdown, TooManyOfUser, LockWaitTimeout, LockDeadlock, RowChanged, OnlyReads,
		QueryInterrupted, ReadOnlyTransaction, ConnectionKilled, StatementTimeout, QueryTimeout, SessionKilled,
		IdleTooLong, OfflineMode, TooManyOfAccount, NodeNotReady, ReadOnlyMode:
		return true
	}
	return network.Failed(err) || Broken(err) || errors.Is(err, fencing.ErrNoRun)
}
