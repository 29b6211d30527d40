package client

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/wrapped"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// sqlConn is a connection of a sqlPool.
type sqlConn struct {
	link
	direct link       // the same for who has the connection alone already
	plain  *plainLink // the same where the driver is another one than pgx's
	kept   *kept      // where it is pgx's

	pooled *sql.Conn // of the caller's sql.DB
	conn   *sql.Conn // through which to send: pooled, or that of lent

	lent  *lent // nil without work
	begun *sql.Tx
}

func (c *sqlConn) Lasting() *Lasting { return nil }

func (c *sqlConn) CarriesWork(counted bool) bool {
	if c.plain != nil {
		return counted && c.plain.several
	}
	return counted || !c.kept.link.byText
}

// alone runs work while nobody else uses the connection. A panic of work, as of an argument's
// Value, goes on behind Raw, which would close the connection, and wait with that for the end of
// the transaction that is open on it: for ever.
func (c *sqlConn) alone(work func() error) (workErr error) {
	var value any
	panicked := false
	rawErr := c.conn.Raw(func(any) error {
		panicked = true
		defer func() { value = recover() }()
		workErr = work() // not returned: database/sql would retry on what looks like a bad connection
		panicked = false
		return nil
	})
	if panicked {
		panic(value)
	}
	return errors.Join(rawErr, workErr)
}

// Begin sends BEGIN and the script together, where the driver can.
func (c *sqlConn) Begin(ctx context.Context, mark string, s sqltext.Script) ([][]string, error) {
	s = append(sqltext.Script{Begin}, s...)
	columns, err := c.first(ctx, s)
	columns = columns[min(1, len(columns)):]
	if err == nil && mark != "" && !s.Works() {
		err = c.present(ctx)
	}
	return columns, err
}

// first sends what begins the transaction.
func (c *sqlConn) first(ctx context.Context, s sqltext.Script) ([][]string, error) {
	if c.kept == nil || c.kept.prepared == nil || s.Works() {
		return c.Run(ctx, s)
	}
	return c.kept.link.backend.run(ctx, s, func(ctx context.Context, s sqltext.Script) (columns [][]string, err error) {
		err = c.alone(func() (err error) {
			columns, err = c.kept.sendPrepared(ctx, c.kept.querier.Conn, s)
			return err
		})
		return columns, err
	})
}

// present makes begun of the open transaction. What the library sends goes through lent's pool from
// now on, so that database/sql keeps it apart from what begun sends.
func (c *sqlConn) present(ctx context.Context) error {
	return c.conn.Raw(func(driverConn any) (err error) {
		through := wrapped.Statements{Conn: driverConn.(sqldriver.Conn)}
		if c.plain != nil {
			through.Within = c.plain.within
		}
		c.lent, c.conn, c.begun, err = lend(ctx, through, c.direct)
		return err
	})
}

func (c *sqlConn) Tx() *sql.Tx { return c.begun }

// Savepoint presents the whole transaction: database/sql knows no nested ones.
func (c *sqlConn) Savepoint(ctx context.Context, name, outer string) (
	nested *sql.Tx, release func(context.Context) error, err error,
) {
	if outer == "" {
		err = c.Exec(ctx, "savepoint "+name)
	}
	last := "release savepoint " + cmp.Or(outer, name)
	return c.begun, func(ctx context.Context) error { return c.Exec(ctx, last) }, err
}

func (c *sqlConn) Commit(ctx context.Context, mark string, settled bool) error {
	if err := c.closeTx(); err != nil {
		return dialects.Lost(err)
	}
	columns, err := c.Run(ctx, commitScript(mark, !settled))
	if c.plain != nil {
		c.plain.over = err != nil && len(columns) > 0 // the proof was given: it is the COMMIT that failed
	}
	return err
}

// closeTx closes the handle of the work, when the statements that run through it have ended. Its
// error says that the work has ended the transaction.
func (c *sqlConn) closeTx() error {
	if c.begun == nil {
		return nil
	}
	c.lent.over.Store(true)
	return c.begun.Rollback()
}

func (c *sqlConn) Rollback(ctx context.Context) error {
	_ = c.closeTx()
	if c.Status() == Idle {
		return nil
	}
	return c.Exec(ctx, "rollback")
}

func (c *sqlConn) Destroy() {
	_ = c.closeTx()
	_ = c.pooled.Raw(func(any) error { return sqldriver.ErrBadConn })
}

func (c *sqlConn) GiveBack() {
	if c.lent != nil {
		_ = c.closeTx()
		_ = c.conn.Close()
		_ = c.lent.db.Close()
	}
	if c.plain != nil && c.plain.broken { // not every driver tells database/sql
		c.Destroy()
	}
	_ = c.pooled.Close()
	if c.plain != nil && c.plain.end != nil {
		c.plain.end()
	}
}
