package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/sqlconn"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/internal/identifier"
)

type sqlPool struct {
	*sql.DB
	pgx *atomic.Bool // the last connection that was seen is pgx's driver's, not wrapped: it takes options
}

// SQL is a pool of database/sql.
func SQL(db *sql.DB) Pool[*sql.Tx] { return sqlPool{db, new(atomic.Bool)} }

func (p sqlPool) Size() int { return p.Stats().MaxOpenConnections }

func (p sqlPool) Take(ctx context.Context) (taken Conn[*sql.Tx], err error) {
	c := &sqlConn{state: Open}
	c.Conn, err = sqlconn.Take(ctx, p.DB, func(to *sqlconn.Conn, pooled any) bool {
		switch conn := pooled.(type) {
		case interface{ Conn() *pgx.Conn }:
			_, own := pooled.(*stdlib.Conn)
			p.pgx.Store(own)
			c.pgx = known(conn.Conn(), p.beside)
			to.Socket, to.End = c.pgx.line.Socket, c.pgx.Destroy
		case interface{ Conn() net.Conn }: // pgdriver of bun
			to.Socket = conn.Conn()
		default:
			return false
		}
		return true
	})
	if err != nil {
		return taken, err
	}
	if c.pgx != nil {
		c.line = c.pgx.line
	} else {
		c.line = Line{Cut: c.Cut(), Socket: c.Socket, Tag: newTag()}
		c.line.Interrupt = func(ctx context.Context) error { return p.beside(ctx, cancelSQL(c.line.Tag)) }
	}
	c.line.Run, c.line.Carries = c.run, false
	return Conn[*sql.Tx]{c.line, c}, nil
}

// In serves LockTx. database/sql does not show the connection behind a *sql.Tx, so a wait is
// interrupted from another connection of the pool.
func (p sqlPool) In(_ context.Context, tx *sql.Tx) (l Line, err error) {
	if tx == nil {
		return l, errors.New("nil transaction")
	}
	tag := newTag()
	l.Interrupt = func(ctx context.Context) error { // a late one would hit the caller's next statement
		return p.beside(ctx, cancelSQL(tag)+" and wait_event_type = 'Lock'")
	}
	l.Run = func(ctx context.Context, s server.Script) ([][]string, error) {
		var options []any
		if p.pgx.Load() { // which would prepare each text, and keep it
			options = []any{pgx.QueryExecModeExec}
		}
		return oneByOne(ctx, tx, s, tag, options...)
	}
	return l, nil
}

func (p sqlPool) beside(ctx context.Context, text string) error {
	return sqlconn.Beside(ctx, p.DB, interrupt.PatienceWith(p.DB), func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, text)
		return err
	})
}

// cancelSQL cancels a statement that carries tag, from another connection: the driver has no cancel
// request, or the login told no key for one, as that of RDS Proxy. It has no arguments: with them,
// some drivers prepare it in a round trip of its own, and outside a transaction a pooler may then
// execute what somebody else has prepared.
func cancelSQL(tag string) string {
	return identifier.Qualified("select pg_cancel_backend(pid) from pg_stat_activity where state = 'active' and " +
		"strpos(query, " + server.Literal(tag) + ") > 0 and pid <> pg_backend_pid()")
}

// newTag begins statements, so that another session finds this one by what it runs. A wrapper may
// put a comment of its own in front.
func newTag() string { return server.Tag + rand.Text() + " */ " }

// sqlConn is a connection of a sqlPool. A script goes statement by statement, and on pgx's driver
// as on a connection of pgx's.
type sqlConn struct {
	*sqlconn.Conn
	line  Line
	pgx   *pgxConn // nil: the driver is not pgx's
	state Status   // that an error has shown; Open: none has
}

func (c *sqlConn) run(ctx context.Context, s server.Script) (columns [][]string, err error) {
	if c.pgx == nil {
		columns, err = oneByOne(ctx, c.Querier(), s, c.line.Tag)
		return columns, c.note(err)
	}
	failed := c.Raw(func(any) error { // below what a program has wrapped around the connection
		columns, err = c.pgx.run(ctx, s)
		return nil // database/sql would try again on what looks like a bad connection
	})
	return columns, c.note(cmp.Or(failed, err))
}

// oneByOne runs a script statement by statement, but those without rows go with the next ones, as
// drivers send a text without arguments: those stand in it, as in cancelSQL.
func oneByOne(ctx context.Context, q sqlconn.Querier, s server.Script, tag string, options ...any) (columns [][]string,
	err error,
) {
	for len(s) > 0 {
		some := 1
		for s[0].Silent && !s[0].Opens && some < len(s) && s[some].Silent && !s[some].Opens {
			some++
		}
		text, err := s[:some].Text()
		if err != nil {
			return columns, err
		}
		if !s[0].Opens {
			text = tag + text
		}
		column := make([][]string, some)
		if s[0].Silent {
			_, err = q.ExecContext(ctx, text)
		} else {
			column[0], err = sqlconn.Column(sqlconn.Grids(q.QueryContext(ctx, text, options...)))
		}
		if err != nil {
			return columns, err
		}
		columns, s = append(columns, column...), s[some:]
	}
	return columns, nil
}

func (c *sqlConn) note(err error) error {
	if server.Broken(err) {
		c.state = Closed
	}
	return err
}

// Begin has the client library begin. Level makes that what Begin is: not every driver has a word
// for it. The server refuses it behind a query, as by which pgx prepares.
func (c *sqlConn) Begin(ctx context.Context, s server.Script) (columns [][]string, err error) {
	level := server.Silent("set transaction isolation level read committed, read write")
	level.Opens = c.pgx != nil
	for tries := 0; ; tries++ {
		if err = c.note(c.Conn.Begin(ctx)); err == nil {
			columns, err = c.run(ctx, append(server.Script{level}, s[1:]...))
		}
		if tries > 0 || server.State(err) != server.TooLate {
			return columns, err
		}
		_ = c.Rollback(ctx)
	}
}

func (c *sqlConn) Commit(ctx context.Context, s server.Script) error {
	_, err := c.run(ctx, s)
	if server.Broken(err) || errors.Is(err, sql.ErrTxDone) {
		return dialects.Lost(err) // before COMMIT
	}
	if err == nil {
		if err = c.Finish(ctx, (*sql.Tx).Commit); err != nil {
			c.state = Idle // the server has refused it
		}
	}
	return c.note(err)
}

// Rollback ends the session, too, where work has ended the transaction: with what that has left.
func (c *sqlConn) Rollback(ctx context.Context) error {
	err := c.Finish(ctx, (*sql.Tx).Rollback)
	if errors.Is(err, sql.ErrTxDone) {
		c.Destroy()
		return nil
	}
	return c.note(err)
}

// GiveBack implements Transaction. Not every driver tells database/sql that a connection is broken.
func (c *sqlConn) GiveBack() {
	if c.state == Closed || c.pgx != nil && c.pgx.mixedUp {
		c.Destroy()
	}
	c.Conn.GiveBack()
}

// Status is Open until an error says otherwise, where the driver does not tell.
func (c *sqlConn) Status() Status {
	if c.pgx == nil || c.state != Open {
		return c.state
	}
	status := Closed
	_ = c.Raw(func(any) error {
		status = c.pgx.Status()
		return nil
	})
	return status
}
