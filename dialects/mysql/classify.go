package mysql

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/internal/locktable"
)

// classify adds to err what it means for a lock in request.
func classify(err error, request dialects.Request) error {
	switch server.Number(err) {
	case server.LockWaitTimeout, server.QueryInterrupted, server.StatementTimeout, server.QueryTimeout,
		server.LockNowait:
		return fmt.Errorf("%w: %w", dialects.ErrNotAcquired, err)
	case server.LockDeadlock, server.RowChanged:
		return fmt.Errorf("%w: the server rolled the whole transaction back: %w", dialects.ErrDeadlock, err)
	case server.OnlyStatements:
		return fmt.Errorf("%w: the server's binlog_format is STATEMENT, which takes REPEATABLE READ: %w",
			dialects.ErrIsolation, err)
	case server.NoSuchTable, server.UnknownColumn, server.UnknownDatabase:
		if request.Slots > 0 || request.Ours {
			return locktable.NotInstalled(request.Table, err)
		}
	case 0, server.ServerShutdown, server.ConnectionKilled, server.SessionKilled:
		return err // no answer, or none that this session outlives
	}
	if request.Slots == 0 && !request.Ours {
		return dialects.RefusedError{Err: err}
	}
	return err
}

// lost says that the session has lost the transaction that took the locks.
func lost(err error) error {
	if err == nil || errors.Is(err, dialects.ErrLost) {
		return err
	}
	if server.Number(err) == server.NoSuchSavepoint {
		return fmt.Errorf("%w: the transaction that took the lock ended before its work did, by a deadlock, COMMIT, "+
			"ROLLBACK or DDL; what came after it is not committed: %w", dialects.ErrLost, err)
	}
	return fmt.Errorf("%w: %w", dialects.ErrLost, err)
}

// isAborted tells whether the transaction has ended with an error that says so in words alone.
// Aurora answers once, on a connection that goes on: "The last transaction was aborted due to Zero
// Downtime Restart. Please retry." (or Patch). Of any other error without a number of its own
// nobody knows whether the transaction goes on.
func isAborted(err error) bool { return server.Number(err) == server.UnknownError }

// wasInterrupted tells whether somebody, or a limit, has ended the statement and nothing else.
func wasInterrupted(err error) bool {
	switch server.Number(err) {
	case server.QueryInterrupted, server.StatementTimeout, server.QueryTimeout:
		return true
	}
	return false
}

// broken tells whether the client library has given the connection up, or has found there what
// nobody asked for: before it closes a session that was idle for too long, MySQL sends an error.
func broken(err error) bool {
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
