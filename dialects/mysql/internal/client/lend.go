package client

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"

	"github.com/txlock/txlock/dialects/internal/wrapped"
)

// Loan presents a connection of the caller's pool as a *sql.Tx, without sending START TRANSACTION:
// that would cost a round trip, and end the transaction that holds the locks. database/sql makes a
// *sql.Tx only through a sql.DB, so a Loan has a sql.DB of that single connection.
//
// The pool's *sql.Conn stays pinned, and sends the session's own statements. One goroutine at a
// time uses the session, and the loan ends before the transaction is ended, so the two never meet
// on the connection.
type Loan struct {
	Tx   *sql.Tx
	db   *sql.DB
	conn *lentConn
}

// Lend begins a loan of conn, whose transaction is open, or begins with its next statement.
func Lend(conn *sql.Conn) (*Loan, error) {
	lent := &lentConn{}
	err := conn.Raw(func(pooled any) error {
		lent.Statements = wrapped.Statements{Conn: pooled.(driver.Conn)}
		return nil
	})
	if err != nil {
		return nil, err
	}
	l := &Loan{db: sql.OpenDB(lent), conn: lent}
	if l.Tx, err = l.db.BeginTx(context.Background(), nil); err != nil {
		_ = l.db.Close()
		return nil, err
	}
	return l, nil
}

// Strays tells whether names may mean other tables on the connection since.
func (l *Loan) Strays() bool { return l.conn.strays }

// End closes the transaction's handle and sends nothing: the session ends the transaction. It waits
// for what is under way on the handle, in a goroutine that the work has left behind.
func (l *Loan) End() {
	l.conn.mu.Lock()
	l.conn.ended = true
	l.conn.mu.Unlock()
	_ = l.Tx.Rollback()
	_ = l.db.Close()
}

// lentConn is the one connection of a loan, its connector, and its transaction.
type lentConn struct {
	wrapped.Statements
	mu     sync.Mutex // held while the handle sends COMMIT or ROLLBACK
	ended  bool       // the connection is the session's alone
	strays bool       // as Owned has it
}

// ExecContext implements driver.ExecerContext.
func (c *lentConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.watch(query)
	return c.Statements.ExecContext(ctx, query, args)
}

// QueryContext implements driver.QueryerContext.
func (c *lentConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.watch(query)
	return c.Statements.QueryContext(ctx, query, args)
}

func (c *lentConn) watch(query string) {
	c.strays = c.strays || !LeavesSettings(query) && renames.MatchString(query)
}

// Connect implements driver.Connector.
func (c *lentConn) Connect(context.Context) (driver.Conn, error) { return c, nil }

// Driver implements driver.Connector.
func (c *lentConn) Driver() driver.Driver { return nil }

// Close implements driver.Conn. The connection is the pool's to close.
func (c *lentConn) Close() error { return nil }

// BeginTx implements driver.ConnBeginTx.
func (c *lentConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return c, nil }

// Commit implements driver.Tx, for work that ends the transaction itself: the session's end then
// finds that its savepoint is gone.
func (c *lentConn) Commit() error { return c.send("COMMIT") }

// Rollback implements driver.Tx.
func (c *lentConn) Rollback() error { return c.send("ROLLBACK") }

func (c *lentConn) send(query string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return sql.ErrTxDone
	}
	_, err := c.ExecContext(context.Background(), query, nil)
	if errors.Is(err, driver.ErrSkip) {
		return c.sendPrepared(query)
	}
	return err
}

func (c *lentConn) sendPrepared(query string) error {
	stmt, err := c.Prepare(query)
	if err != nil {
		return err
	}
	if execer, ok := stmt.(driver.StmtExecContext); ok {
		_, err = execer.ExecContext(context.Background(), nil)
	} else {
		err = driver.ErrSkip
	}
	return errors.Join(err, stmt.Close())
}
