// Package anydriver shows that the guarantees hold on drivers of database/sql that the root module
// does not require, and on drivers that a program has wrapped, as for traces.
package anydriver

import (
	"database/sql"
	"database/sql/driver"

	"github.com/XSAM/otelsql"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
	"github.com/ngrok/sqlmw"
)

// Opening is how a program opens its sql.DB.
type Opening struct {
	Name   string
	Open   func(dsn string) (*sql.DB, error)
	Unseen bool // nobody sees its socket, nor what a wrapper wraps
}

// Postgres are those of a PostgreSQL.
var Postgres = []Opening{
	{"lib pq", func(dsn string) (*sql.DB, error) { return sql.Open("postgres", dsn) }, false},
	{"otelsql around pgx", traced(stdlib.GetDefaultDriver()), false},
	{"otelsql around lib pq", traced(&pq.Driver{}), false},
	{"sqlmw around pgx", intercepted(stdlib.GetDefaultDriver()), false},
	{"sqlmw around lib pq", intercepted(&pq.Driver{}), false},
	{"opaque around pgx", hidden(stdlib.GetDefaultDriver()), true},
	{"opaque around lib pq", hidden(&pq.Driver{}), true},
}

// MySQL are those of a MySQL or MariaDB.
var MySQL = []Opening{
	{"otelsql around mysql", traced(&mysql.MySQLDriver{}), false},
	{"sqlmw around mysql", intercepted(&mysql.MySQLDriver{}), false},
	{"opaque around mysql", hidden(&mysql.MySQLDriver{}), true},
}

func traced(below driver.Driver) func(string) (*sql.DB, error) {
	wrapped := otelsql.WrapDriver(below)
	return func(dsn string) (*sql.DB, error) { return open(wrapped, dsn) }
}

func intercepted(below driver.Driver) func(string) (*sql.DB, error) {
	wrapped := sqlmw.Driver(below, sqlmw.NullInterceptor{})
	return func(dsn string) (*sql.DB, error) { return open(wrapped, dsn) }
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
