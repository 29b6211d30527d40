package client

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"sync"

	"github.com/txlock/txlock/dialects/internal/wrapped"
)

// Loan presents a connection of a pool as a *sql.Tx, without sending START TRANSACTION: that would
// cost a round trip, and end the transaction that holds the locks. database/sql makes a *sql.Tx of
// a connection that a sql.DB has opened. So a pool has a further sql.DB, which opens nothing, and
// takes for its connection the one that the context of its BeginTx has.
//
// The pool's *sql.Conn stays pinned, and sends the session's own statements. One goroutine at a
// time uses the session, and the loan ends before the transaction is ended, so the two never meet
// on the connection.
type Loan struct {
	Tx   *sql.Tx
	conn *lentConn
}

// Lend begins a loan of conn, whose transaction is open, or begins with its next statement.
func (p *Pool) Lend(conn Conn) (*Loan, error) {
	lent := &lentConn{owned: conn.Owned}
	err := conn.Raw(func(pooled any) error {
		lent.Statements = wrapped.Statements{Conn: pooled.(driver.Conn)}
		return nil
	})
	if err != nil {
		return nil, err
	}
	tx, err := p.lender().BeginTx(context.WithValue(context.Background(), lending{}, lent), nil)
	if err != nil {
		return nil, err
	}
	return &Loan{tx, lent}, nil
}

// lender is the pool's sql.DB of loans, until Close.
func (p *Pool) lender() *sql.DB {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loans == nil {
		p.loans = sql.OpenDB(lending{})
		p.loans.SetMaxIdleConns(-1)
		runtime.AddCleanup(p, func(loans *sql.DB) { _ = loans.Close() }, p.loans) // of a pool that nobody closes
	}
	return p.loans
}

func (p *Pool) closeLender() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loans != nil {
		_ = p.loans.Close()
		p.loans = nil
	}
}

// lending is the connector of loans, and the key of what is lent in a context.
type lending struct{}

// Connect implements driver.Connector.
func (l lending) Connect(ctx context.Context) (driver.Conn, error) {
	return ctx.Value(l).(*lentConn), nil
}

// Driver implements driver.Connector.
func (lending) Driver() driver.Driver { return nil }

// Strays tells whether the connection may have a lock of the server's since, or names mean other
// tables there.
func (l *Loan) Strays() bool { return l.conn.strays }

// End closes the transaction's handle and sends nothing: the session ends the transaction. It waits
// for what is under way on the handle, in a goroutine that the work has left behind.
func (l *Loan) End() {
	l.conn.mu.Lock()
	l.conn.ended = true
	l.conn.mu.Unlock()
	_ = l.Tx.Rollback()
}

// lentConn is the one connection of a loan, and its transaction. What it sends is the work's.
type lentConn struct {
	wrapped.Statements
	owned  *Owned     // nil on a caller's pool
	mu     sync.Mutex // held while the handle sends COMMIT or ROLLBACK
	ended  bool       // the connection is the session's alone
	strays bool       // see Strays: with other tables nobody is excluded
}

// watch has the next lock on a connection of Open set its settings anew, unless it is certain that
// a statement leaves them alone. Work that leaves autocommit on would end each later lock with the
// statement that takes it. To set them for each lock would cost MariaDB 35 µs.
func (c *lentConn) watch(query string) {
	plain := leavesSettings(query)
	c.strays = c.strays || keepsLock.MatchString(query) || !plain && renames.MatchString(query)
	if c.owned != nil && !plain {
		c.owned.Lease = 0
	}
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

// PrepareContext implements driver.ConnPrepareContext.
func (c *lentConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.watch(query)
	return c.Statements.PrepareContext(ctx, query)
}

// Close implements driver.Conn. The connection is the pool's to close.
func (c *lentConn) Close() error { return nil }

// BeginTx implements driver.ConnBeginTx.
func (c *lentConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return c, nil }

// Commit implements driver.Tx, for work that ends the transaction itself. It commits none but the
// one that took the lock. The session's end then finds that its savepoint is gone.
func (c *lentConn) Commit() error {
	if err := c.send(Release); err != nil {
		return err
	}
	return c.send("COMMIT")
}

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
