package client

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/wrapped"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/peer"
)

// Conn is a connection of a pool, with what it is made of.
//
// go-sql-driver/mysql shows to nobody its socket, without which only the next heartbeat would
// notice the loss of a session, and whether it takes several statements in one query. The socket is
// watched, never used, and found below what a program has wrapped around the connection. Statements
// go through the wrapper, which may not pass on several of them. With another driver, or a version
// with other names for the fields, there is no socket, and statements travel alone.
type Conn struct {
	*sql.Conn
	Socket  net.Conn // nil when it cannot be seen
	Cut     func()   // closes the socket; nil without
	Several bool     // it takes several statements in one query
	Owned   *Owned   // nil on a caller's pool
}

// Link is where statements of the session go.
func (c Conn) Link() Link { return Link{c.Conn, c.Several} }

// Busy is ErrBusy while rows of the work are open. To send something then costs the connection.
func (c Conn) Busy() (err error) {
	_ = c.Raw(func(pooled any) error {
		valid, known := wrapped.Innermost(pooled).(driver.Validator)
		closed := c.Socket != nil && (peer.Conn{Conn: c.Socket}).Gone()
		if known && !valid.IsValid() && !closed {
			err = server.ErrBusy
		}
		return nil
	})
	return err
}

func connOf(conn *sql.Conn) (c Conn) {
	c.Conn = conn
	_ = conn.Raw(func(pooled any) error {
		if c.Owned, _ = pooled.(*Owned); c.Owned != nil {
			c.Socket, c.Several = c.Owned.socket, true
			return nil
		}
		config := wrapped.Field[*mysql.Config](pooled, "cfg")
		c.Socket, c.Several = socketOf(wrapped.Innermost(pooled)), config != nil && config.MultiStatements
		return nil
	})
	if socket := c.Socket; socket != nil {
		c.Cut = func() { _ = socket.Close() }
	}
	return c
}

func socketOf(conn any) net.Conn {
	if socket := wrapped.Field[net.Conn](conn, "rawConn"); socket != nil { // below TLS; nil without
		return socket
	}
	return wrapped.Field[net.Conn](conn, "netConn")
}

const (
	// ReadsNow is 0 where a query may read what an older transaction sees, at autocommit=0, or what
	// others have not committed.
	ReadsNow = "IF(@@autocommit AND " + sqltext.Isolation + " <> 'READ-UNCOMMITTED', 1, 0)"
	// ReadCommitted is for the next transaction.
	ReadCommitted = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
)

// ReadNow runs a query that reads what is committed now, and leaves no transaction open. Its answer
// begins with ReadsNow: where that is 0, an older transaction is committed, as START TRANSACTION
// would, and the query runs again.
func (c Conn) ReadNow(ctx context.Context, query string) (answer []string, err error) {
	level := ReadCommitted
	switch {
	case c.Owned != nil: // which has it
		level = ""
	case !c.Several:
		answer, err = c.Link().Ask(ctx, query)
		if err != nil || len(answer) == 0 || !strings.HasPrefix(answer[0], "0") {
			return answer, err
		}
	}
	return c.Link().Ask(ctx, "COMMIT", level, query, "ROLLBACK")
}

// Setting runs work while variables of the session, given by name and value, have other values.
func Setting(ctx context.Context, conn *sql.Conn, work func() error, variables ...string) error {
	var set, restore []string
	for pair := range slices.Chunk(variables, 2) {
		name, kept := pair[0], "@txlock_"+pair[0]
		set = append(set, kept+" = @@"+name, name+" = "+pair[1])
		restore = append(restore, name+" = COALESCE("+kept+", @@"+name+")", kept+" = NULL")
	}
	_, err := conn.ExecContext(ctx, "SET "+strings.Join(set, ", "))
	if err == nil {
		err = work()
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	if _, failed := conn.ExecContext(clean, "SET "+strings.Join(restore, ", ")); failed != nil {
		server.Destroy(conn)
	}
	return err
}
