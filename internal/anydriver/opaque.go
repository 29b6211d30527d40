package anydriver

import (
	"context"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"
)

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

// single is an opaque driver of pgx's that takes one statement in a query, in one round trip.
type single struct{ opaque }

// Open implements driver.Driver.
func (s single) Open(dsn string) (driver.Conn, error) {
	conn, err := s.opaque.Open(dsn)
	if err != nil {
		return nil, err
	}
	return &singleConn{conn.(passing)}, nil
}

type singleConn struct{ passing }

// ExecContext implements driver.ExecerContext.
func (s *singleConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	rows, err := s.QueryContext(ctx, query, args)
	if err == nil {
		err = rows.Close()
	}
	return driver.ResultNoRows, err
}

// QueryContext implements driver.QueryerContext.
func (s *singleConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return s.passing.QueryContext(ctx, query, byItself(args))
}

// byItself has pgx send a statement in the extended protocol, which takes no other beside it.
func byItself(args []driver.NamedValue) []driver.NamedValue {
	return append([]driver.NamedValue{{Value: pgx.QueryExecModeExec}}, args...)
}
