// Package server reads the errors of MySQL and MariaDB, and what they mean for a lock.
package server

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/sqlconn"
	"github.com/txlock/txlock/internal/locktable"
)

// Numbers of errors that mean something to a lock: see the servers' references.
const (
	RowChanged       = 1020 // MariaDB, innodb_snapshot_isolation: the transaction is rolled back
	NodeNotReady     = 1047 // Galera
	UnknownDatabase  = 1049
	ServerShutdown   = 1053
	UnknownColumn    = 1054
	UnknownError     = 1105
	NoPrivilege      = 1142
	NoSuchTable      = 1146
	LockWaitTimeout  = 1205 // on MariaDB also NOWAIT
	LockDeadlock     = 1213 // the transaction is rolled back
	WrongArguments   = 1210
	WrongValue       = 1231 // of a variable
	SeveralRows      = 1242 // of a subquery that must have one
	OnlyReads        = 1290 // read_only, as ReadOnlyMode
	NoSuchSavepoint  = 1305
	QueryInterrupted = 1317 // KILL QUERY
	InTransaction    = 1568 // so that its characteristics cannot be changed
	ReadOnlyMode     = 1836
	ConnectionKilled = 1927 // MariaDB
	StatementTimeout = 1969 // MariaDB, max_statement_time
	QueryTimeout     = 3024 // MySQL, MAX_EXECUTION_TIME
	SessionKilled    = 3169 // MySQL
	lockNowait       = 3572 // MySQL, NOWAIT
)

// Number is the server's number of an error, 0 of an error that no server sent.
func Number(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}

// IsDeadlock tells whether the server has rolled the whole transaction back for another's sake.
func IsDeadlock(err error) bool { return Number(err) == LockDeadlock || Number(err) == RowChanged }

// Classify adds to err what it means for a lock in request.
func Classify(err error, request dialects.Request) error {
	if IsDeadlock(err) {
		return fmt.Errorf("%w: the server rolled the whole transaction back: %w", dialects.ErrDeadlock, err)
	}
	switch Number(err) {
	case LockWaitTimeout, QueryInterrupted, StatementTimeout, QueryTimeout, lockNowait:
		return fmt.Errorf("%w: %w", dialects.ErrNotAcquired, err)
	case NodeNotReady:
		return fmt.Errorf("this node of a Galera cluster takes no statements, because it does not reach the majority "+
			"of the nodes, or has not caught up with them: connect to another: %w", err)
	case NoSuchTable, UnknownColumn, UnknownDatabase:
		if request.Ours {
			return locktable.NotInstalled(request.Table, err)
		}
	case 0, ServerShutdown, ConnectionKilled, SessionKilled:
		return err // no answer, or none that this session outlives
	}
	if !request.Ours {
		return dialects.RefusedError{Err: err}
	}
	return err
}

// Ours is Classify for a statement on a table of txlock's own.
func Ours(err error, table string) error {
	if Number(err) == NoPrivilege {
		return fmt.Errorf("%w: %w", dialects.ErrNotPermitted, err)
	}
	return Classify(err, dialects.Request{Table: table, Ours: true})
}

// Lost says that the session has lost the transaction that took the locks.
func Lost(err error) error {
	if Number(err) == NoSuchSavepoint && !errors.Is(err, dialects.ErrLost) {
		return fmt.Errorf("%w: the transaction that took the lock ended before its work did, by a deadlock, COMMIT, "+
			"ROLLBACK or DDL; what came after it is not committed: %w", dialects.ErrLost, err)
	}
	return dialects.Lost(err)
}

// Interrupted tells whether somebody, or a limit, has ended the statement and nothing else.
func Interrupted(err error) bool {
	number := Number(err)
	return number == QueryInterrupted || number == StatementTimeout || number == QueryTimeout
}

// Ended tells whether the server has ended the session.
func Ended(err error) bool {
	number := Number(err)
	return number == ServerShutdown || number == ConnectionKilled || number == SessionKilled
}

// Broken tells whether the client library has given the connection up, or has found there what
// nobody asked for: before it closes a session that was idle for too long, MySQL sends an error.
// Aurora goes on, and says once that the transaction "was aborted due to Zero Downtime Restart".
func Broken(err error) bool {
	aborted := Number(err) == UnknownError && strings.Contains(err.Error(), "The last transaction was aborted due to")
	return aborted || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, mysql.ErrPktSync) ||
		errors.Is(err, mysql.ErrMalformPkt) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}

// ErrBusy says that nothing can be sent yet, and that nothing is lost.
var ErrBusy = errors.New("rows of a query of the work are still open on this connection, or it is broken: close " +
	"them first")

// Outcome does what Classify of dialects.Driver promises.
func Outcome(err error) dialects.Outcome {
	switch Number(err) {
	case LockDeadlock, RowChanged:
		return dialects.Deadlock
	case 1040, 1203, 1226, // too many connections, of the user, of the account
		1792, OnlyReads, ReadOnlyMode, NodeNotReady, // 1792: the transaction is read only
		3032, 4031, ServerShutdown, ConnectionKilled, SessionKilled, // offline_mode, idle for too long
		LockWaitTimeout, QueryInterrupted, StatementTimeout, QueryTimeout:
		return dialects.Passing
	}
	if sqlconn.Failed(err) || Broken(err) || errors.Is(err, fencing.ErrNoRun) {
		return dialects.Passing
	}
	return dialects.Final
}
