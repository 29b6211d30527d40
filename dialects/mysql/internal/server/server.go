// Package server reads the answers of MySQL and MariaDB: rows, errors by their numbers, and what
// those mean for a lock.
package server

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/go-sql-driver/mysql"
)

// Numbers of errors (MySQL: server error reference; MariaDB: error codes) that mean something to a
// lock.
const (
	RowChanged          = 1020 // MariaDB, innodb_snapshot_isolation: the transaction is rolled back
	TooManyConnections  = 1040
	NoDatabasePrivilege = 1044
	NodeNotReady        = 1047 // Galera
	UnknownDatabase     = 1049
	TableExists         = 1050
	ServerShutdown      = 1053
	UnknownColumn       = 1054
	NoSuchThread        = 1094
	KillDenied          = 1095
	UnknownError        = 1105
	NoPrivilege         = 1142
	NoColumnPrivilege   = 1143
	NoSuchTable         = 1146
	TooManyOfUser       = 1203 // connections
	LockWaitTimeout     = 1205 // on MariaDB also NOWAIT
	LockDeadlock        = 1213 // the transaction is rolled back
	TooManyOfAccount    = 1226
	NoGlobalPrivilege   = 1227
	SeveralRows         = 1242 // of a subquery that must have one
	OnlyReads           = 1290 // read_only
	NoSuchSavepoint     = 1305
	QueryInterrupted    = 1317 // KILL QUERY
	InTransaction       = 1568 // so that its characteristics cannot be changed
	OnlyStatements      = 1665 // at READ COMMITTED, where the binary log takes statements only
	ReadOnlyTransaction = 1792
	ReadOnlyMode        = 1836
	ConnectionKilled    = 1927 // MariaDB
	StatementTimeout    = 1969 // MariaDB, max_statement_time
	QueryTimeout        = 3024 // MySQL, MAX_EXECUTION_TIME
	OfflineMode         = 3032
	RefusedByPlugin     = 3098 // MySQL, Group Replication of a table that is not InnoDB's
	SessionKilled       = 3169 // MySQL
	LockNowait          = 3572 // MySQL, NOWAIT
	IdleTooLong         = 4031 // MySQL, wait_timeout
)

// Number is the server's number of an error, 0 of an error that no server sent.
func Number(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}

// Querier is a transaction, or the connection below it.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Grid is all of a query's result, with "" for NULL.
func Grid(ctx context.Context, q Querier, query string) (lines [][]string, err error) {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		line := make([]string, len(columns))
		for i, value := range values {
			line[i] = string(value)
		}
		lines = append(lines, line)
	}
	return lines, rows.Err()
}

// Column runs statements, and returns the first column of the rows of the first that has rows.
func Column(ctx context.Context, q Querier, query string) ([]string, error) {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var values []string
	for first := true; ; first = false {
		for rows.Next() {
			var value sql.RawBytes
			if err := rows.Scan(&value); err != nil {
				return nil, err
			}
			if first {
				values = append(values, string(value))
			}
		}
		if !rows.NextResultSet() { // reading its result shows the error of a later statement
			return values, rows.Err()
		}
	}
}

// Destroy has a connection closed when it is given back.
func Destroy(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
