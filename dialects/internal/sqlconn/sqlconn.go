// Package sqlconn is a connection of a sql.DB, as both dialects use it.
package sqlconn

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/txlock/txlock/dialects/internal/interrupt"
)

// Conn is a connection of a sql.DB with at most one transaction, for one goroutine beside the work.
type Conn struct {
	*sql.Conn
	Socket   net.Conn // nil: the driver does not show it
	End      func()   // ends the session below database/sql; nil: the driver's Close does
	Farewell string   // is sent before that, to a driver that takes it; empty: nothing

	tx        *sql.Tx
	end       context.CancelFunc // ends the context of tx
	destroyed bool
	stuck     bool // see guarded
}

// Guest is a transaction of the caller's, to send statements in.
func Guest(tx *sql.Tx) *Conn { return &Conn{tx: tx} }

// Take takes a connection from a pool. Look is shown the driver's connection, and what that wraps,
// until it knows one.
func Take(ctx context.Context, db *sql.DB, look func(c *Conn, pooled any) (known bool)) (*Conn, error) {
	conn, err := db.Conn(ctx)
	if stats := db.Stats(); err != nil && ctx.Err() != nil && stats.MaxOpenConnections > 0 {
		return nil, fmt.Errorf("no connection from the pool in time, %d of %d are in use: %w", stats.InUse,
			stats.MaxOpenConnections, err)
	}
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c := &Conn{Conn: conn}
	return c, conn.Raw(func(pooled any) error {
		for wraps := 0; wraps < 16 && !look(c, pooled); wraps++ { // a wrapper may wrap itself
			switch wrapper := pooled.(type) {
			case interface{ Raw() driver.Conn }: // XSAM/otelsql
				pooled = wrapper.Raw()
			case interface{ WrappedConn() driver.Conn }: // dd-trace-go
				pooled = wrapper.WrappedConn()
			}
		}
		return nil
	})
}

// Cut closes the socket, whoever uses the connection; nil: there is none to close.
func (c *Conn) Cut() func() {
	if c.Socket == nil {
		return nil
	}
	return func() { _ = c.Socket.Close() }
}

// Begin begins the transaction. It lives longer than ctx, at whose end database/sql would roll it
// back. After an error Finish ends what may have begun.
func (c *Conn) Begin(ctx context.Context) (err error) {
	var life context.Context
	life, c.end = context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, c.end)
	c.tx, err = c.BeginTx(life, nil)
	if !stop() { // so database/sql rolls back
		err = cmp.Or(err, ctx.Err())
	}
	return err
}

// Tx is the transaction; nil: none has begun, or it was finished.
func (c *Conn) Tx() *sql.Tx { return c.tx }

// Querier is a connection, or a transaction on it.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Querier is the transaction, if there is one: database/sql would close the connection behind an
// error of its own, and wait with that for the end of the transaction, for ever.
func (c *Conn) Querier() Querier {
	if c.tx != nil {
		return guarded{c.tx, c}
	}
	return guarded{c.Conn, c}
}

// guarded notes a driver that panics in a query: database/sql has a mutex locked then, and never
// gets the connection back.
type guarded struct {
	Querier
	conn *Conn
}

func (g guarded) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	g.conn.stuck = true
	rows, err := g.Querier.QueryContext(ctx, query, args...)
	g.conn.stuck = false
	return rows, err
}

// Finish ends the transaction by how, its Commit or its Rollback: sql.ErrTxDone behind the work's.
func (c *Conn) Finish(ctx context.Context, how func(*sql.Tx) error) error {
	if c.tx == nil {
		return nil
	}
	tx := c.tx
	c.tx = nil
	defer c.end()
	defer context.AfterFunc(ctx, c.end)()
	return how(tx)
}

// Destroy closes the connection: also below a pool of pools, as stdlib.OpenDBFromPool. It waits for
// a second at most: a driver without a socket may still run a statement.
func (c *Conn) Destroy() {
	if c.destroyed {
		return
	}
	c.destroyed = true
	if c.Socket != nil {
		_ = c.Socket.Close()
	}
	tx, gone := c.tx, make(chan struct{})
	c.tx = nil
	go func() {
		defer close(gone)
		_ = c.Raw(func(pooled any) error {
			defer func() { _ = recover() }() // a driver that has panicked may do so again
			if execer, is := pooled.(driver.ExecerContext); is && c.Farewell != "" {
				brief, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_, _ = execer.ExecContext(brief, c.Farewell, nil)
			}
			if opened, is := pooled.(driver.Conn); c.End != nil {
				c.End()
			} else if is {
				_ = opened.Close()
			}
			return nil // an error would have database/sql wait for the end of the transaction
		})
		if c.stuck {
			return
		}
		if tx != nil {
			c.end()
			_ = tx.Rollback()
		}
		_ = c.Raw(func(any) error { return driver.ErrBadConn }) // which closes the sql.Conn
	}()
	interrupt.ClosedWithin(gone, time.Second)
}

// GiveBack gives the connection back, or destroys it with an open transaction or behind a panic.
func (c *Conn) GiveBack() {
	if c.tx != nil || c.stuck {
		c.Destroy()
	}
	if !c.destroyed {
		_ = c.Close()
	}
}

// Grids are the rows of each statement that may have some, "" for NULL, up to the first that fails.
func Grids(rows *sql.Rows, err error) (grids [][][]string, failed error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for more := true; more; more = rows.NextResultSet() { // reading its result shows the error of a later statement
		columns, err := rows.Columns()
		if err != nil || len(columns) == 0 {
			continue
		}
		values, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		var lines [][]string
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				return grids, err
			}
			line := make([]string, len(columns))
			for i, value := range values {
				line[i] = string(value)
			}
			lines = append(lines, line)
		}
		if rows.Err() == nil {
			grids = append(grids, lines)
		}
	}
	return grids, rows.Err()
}

// Column is the first column of the first of Grids.
func Column(grids [][][]string, err error) (column []string, failed error) {
	if err == nil && len(grids) > 0 {
		for _, line := range grids[0] {
			column = append(column, line[0])
		}
	}
	return column, err
}

// Beside runs work on another connection of a pool, if it has one to give within that time: else it
// is interrupt.ErrNoConnection.
func Beside(ctx context.Context, db *sql.DB, limit time.Duration, work func(*sql.Conn) error) error {
	brief, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := db.Conn(brief)
	if err != nil { // the server is slow, or the pool is full
		return cmp.Or(ctx.Err(), interrupt.ErrNoConnection)
	}
	return errors.Join(work(conn), conn.Close())
}

// Failed tells whether no connection was made or came in time, or broke: one may succeed later.
func Failed(err error) bool {
	var way net.Error // also context.DeadlineExceeded
	return errors.As(err, &way) || slices.ContainsFunc([]error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, driver.ErrBadConn, sql.ErrConnDone,
	}, func(broken error) bool { return errors.Is(err, broken) })
}
