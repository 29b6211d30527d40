package client

import (
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
	channel
	line   Line
	direct channel    // the same for who has the connection alone already
	plain  *plainConn // the same where the driver is another one than pgx's

	pooled *sql.Conn // of the caller's sql.DB
	conn   *sql.Conn // through which to send: pooled, or that of lent

	lent  *lent // nil without work
	begun *sql.Tx
}

func (c *sqlConn) Line() Line { return c.line }

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

// Begin also makes begun of the open transaction. What the library sends goes through lent's pool
// from then on, so that database/sql keeps it apart from what begun sends.
func (c *sqlConn) Begin(ctx context.Context, mark string, s sqltext.Script) ([][]string, error) {
	columns, err := c.begin(ctx, mark, s)
	if err != nil || mark == "" {
		return columns, err
	}
	return columns, c.conn.Raw(func(driverConn any) (err error) {
		through := wrapped.Statements{Conn: driverConn.(sqldriver.Conn)}
		if c.plain != nil {
			through.Within = c.plain.within
		}
		c.lent, c.conn, c.begun, err = lend(ctx, through, c.direct)
		return err
	})
}

func (c *sqlConn) Tx() *sql.Tx { return c.begun }

// Carries implements channel: the statements go one by one through the *sql.Tx.
func (c *sqlConn) Carries() bool { return false }

func (c *sqlConn) Commit(ctx context.Context, mark string, behind ...sqltext.Statement) error {
	if err := c.closeTx(); err != nil {
		return dialects.Lost(err)
	}
	_, err := c.commit(ctx, mark, behind...)
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
	_ = c.pooled.Raw(func(any) error {
		// database/sql gives a connection of stdlib.OpenDBFromPool back to its pool, where it lives
		// on.
		if pgx, ok := c.direct.(*pgxConn); ok {
			_ = pgx.conn.Close(over)
		}
		return sqldriver.ErrBadConn
	})
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
	if c.plain != nil {
		c.plain.close()
	}
}
