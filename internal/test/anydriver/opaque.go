package anydriver

import (
	"context"
	"database/sql/driver"
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
