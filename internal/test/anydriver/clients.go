// Package anydriver shows that the guarantees hold on drivers of database/sql that the root module
// does not require, and on drivers that a program has wrapped, as for traces.
package anydriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	"github.com/XSAM/otelsql"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
	"github.com/ngrok/sqlmw"
	"github.com/uptrace/bun/driver/pgdriver"
)

// Opening is how a program opens its sql.DB.
type Opening struct {
	Name   string
	Open   func(dsn string) (*sql.DB, error)
	Unseen bool // nobody sees its socket
}

// Postgres are those of a PostgreSQL.
var Postgres = []Opening{
	{"lib pq", func(dsn string) (*sql.DB, error) { return sql.Open("postgres", dsn) }, true},
	{"otelsql around pgx", traced(stdlib.GetDefaultDriver()), false},
	{"otelsql around lib pq", traced(&pq.Driver{}), true},
	{"sqlmw around pgx", intercepted(stdlib.GetDefaultDriver()), true},
	{"sqlmw around lib pq", intercepted(&pq.Driver{}), true},
	{"opaque around pgx", hidden(stdlib.GetDefaultDriver()), true},
	{"opaque around lib pq", hidden(&pq.Driver{}), true},
	{"pgdriver of bun", patient, false},
}

// MySQL are those of a MySQL or MariaDB.
var MySQL = []Opening{
	{"otelsql around mysql", traced(&mysql.MySQLDriver{}), true},
	{"sqlmw around mysql", intercepted(&mysql.MySQLDriver{}), true},
	{"opaque around mysql", hidden(&mysql.MySQLDriver{}), true},
}

// patient opens bun's driver, which gives up a statement after 10 s unless it is told otherwise.
func patient(dsn string) (*sql.DB, error) {
	return sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(dsn), pgdriver.WithReadTimeout(time.Hour))), nil
}

func traced(below driver.Driver) func(string) (*sql.DB, error) {
	wrapped := otelsql.WrapDriver(below)
	return func(dsn string) (*sql.DB, error) { return open(wrapped, dsn) }
}

func intercepted(below driver.Driver) func(string) (*sql.DB, error) {
	wrapped := sqlmw.Driver(below, sqlmw.NullInterceptor{})
	return func(dsn string) (*sql.DB, error) { return open(wrapped, dsn) }
}

// interceptor is told of each statement that passes.
type interceptor struct {
	sqlmw.NullInterceptor
	before func(query string)
	after  func(query string, err error)
}

// ConnExecContext implements sqlmw.Interceptor.
func (i interceptor) ConnExecContext(ctx context.Context, conn driver.ExecerContext, query string,
	args []driver.NamedValue,
) (driver.Result, error) {
	i.before(query)
	result, err := conn.ExecContext(ctx, query, args)
	i.after(query, err)
	return result, err
}

// ConnQueryContext implements sqlmw.Interceptor.
func (i interceptor) ConnQueryContext(ctx context.Context, conn driver.QueryerContext, query string,
	args []driver.NamedValue,
) (context.Context, driver.Rows, error) {
	i.before(query)
	rows, err := conn.QueryContext(ctx, query, args)
	i.after(query, err)
	return ctx, rows, err
}

func hidden(below driver.Driver) func(string) (*sql.DB, error) {
	return func(dsn string) (*sql.DB, error) { return open(opaque{below}, dsn) }
}

func open(d driver.Driver, dsn string) (*sql.DB, error) {
	if contexts, ok := d.(driver.DriverContext); ok {
		connector, err := contexts.OpenConnector(dsn)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	}
	return sql.OpenDB(byName{d, dsn}), nil
}

// byName connects by the oldest way that a driver has.
type byName struct {
	driver driver.Driver
	dsn    string
}

// Connect implements driver.Connector.
func (b byName) Connect(context.Context) (driver.Conn, error) { return b.driver.Open(b.dsn) }

// Driver implements driver.Connector.
func (b byName) Driver() driver.Driver { return b.driver }

// opaque is a driver that wraps the connections of another one, and does not show what it wraps.
type opaque struct{ below driver.Driver }

// Open implements driver.Driver.
func (o opaque) Open(dsn string) (driver.Conn, error) {
	conn, err := o.below.Open(dsn)
	if err != nil {
		return nil, err
	}
	return &opaqueConn{conn.(passing)}, nil
}

// passing is what the connection of a driver usually can do.
type passing interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.SessionResetter
}

type opaqueConn struct{ passing }
