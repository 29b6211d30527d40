package mysql

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/locktable"
)

// Server error numbers (MySQL: server error reference; MariaDB: error codes) that mean something to
// a lock.
const (
	rowChanged          = 1020 // MariaDB, innodb_snapshot_isolation: the transaction is rolled back
	tooManyConnections  = 1040
	noDatabasePrivilege = 1044
	unknownDatabase     = 1049
	serverShutdown      = 1053
	tableExists         = 1050
	unknownColumn       = 1054
	noSuchThread        = 1094
	killDenied          = 1095
	unknownError        = 1105
	noPrivilege         = 1142
	noColumnPrivilege   = 1143
	noSuchTable         = 1146
	tooManyOfUser       = 1203 // connections
	lockWaitTimeout     = 1205 // on MariaDB also NOWAIT
	lockDeadlock        = 1213 // the transaction is rolled back
	nodeNotReady        = 1047 // Galera
	tooManyOfAccount    = 1226
	noGlobalPrivilege   = 1227
	severalRows         = 1242 // of a subquery that must have one
	onlyReads           = 1290 // read_only
	noSuchSavepoint     = 1305
	queryInterrupted    = 1317 // KILL QUERY
	inTransaction       = 1568 // so that its characteristics cannot be changed
	onlyStatements      = 1665 // at READ COMMITTED, where the binary log takes statements only
	readOnlyTransaction = 1792
	readOnlyMode        = 1836
	connectionKilled    = 1927 // MariaDB
	statementTimeout    = 1969 // MariaDB, max_statement_time
	offlineMode         = 3032
	queryTimeout        = 3024 // MySQL, MAX_EXECUTION_TIME
	refusedByPlugin     = 3098 // MySQL, Group Replication of a table that is not InnoDB's
	sessionKilled       = 3169 // MySQL
	lockNowait          = 3572 // MySQL, NOWAIT
	idleTooLong         = 4031 // MySQL, wait_timeout
)

// classify adds to err what it means for a lock in request.
func classify(err error, request dialects.Request) error {
	switch number(err) {
	case lockWaitTimeout, queryInterrupted, statementTimeout, queryTimeout, lockNowait:
		return fmt.Errorf("%w: %w", dialects.ErrNotAcquired, err)
	case lockDeadlock, rowChanged:
		return fmt.Errorf("%w: the server rolled the whole transaction back: %w", dialects.ErrDeadlock, err)
	case onlyStatements:
		return fmt.Errorf("%w: the server's binlog_format is STATEMENT, which takes REPEATABLE READ: %w",
			dialects.ErrIsolation, err)
	case noSuchTable, unknownColumn, unknownDatabase:
		if request.Slots > 0 || request.Ours {
			return locktable.NotInstalled(request.Table, err)
		}
	case 0, serverShutdown, connectionKilled, sessionKilled: // no answer, or none that this session outlives
		return err
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
	if number(err) == noSuchSavepoint {
		return fmt.Errorf("%w: the transaction that took the lock ended before its work did, by a deadlock, COMMIT, "+
			"ROLLBACK or DDL; what came after it is not committed: %w", dialects.ErrLost, err)
	}
	return fmt.Errorf("%w: %w", dialects.ErrLost, err)
}

// isAborted tells whether the transaction has ended with an error that says so in words alone.
// Aurora answers once, on a connection that goes on: "The last transaction was aborted due to Zero
// Downtime Restart. Please retry." (or Patch). Of any other error without a number of its own
// nobody knows whether the transaction goes on.
func isAborted(err error) bool { return number(err) == unknownError }

// wasInterrupted tells whether somebody, or a limit, has ended the statement and nothing else.
func wasInterrupted(err error) bool {
	switch number(err) {
	case queryInterrupted, statementTimeout, queryTimeout:
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

// number is the server's error number, 0 for an error that no server sent.
func number(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}
