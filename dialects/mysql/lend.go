package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// loan presents a connection of the caller's pool as a *sql.Tx without sending START TRANSACTION,
// which would cost a round trip, and end the transaction that holds the locks. database/sql makes
// such a value only through a sql.DB, so this is one of a single connection that ends with the
// loan.
//
// The pool's *sql.Conn stays pinned all the while, and sends what the session itself has to send:
// one goroutine at a time uses the session, so the two never meet on the connection.
type loan struct {
	db   *sql.DB
	tx   *sql.Tx
	conn *lentConn
}

// lend begins a loan of conn, whose transaction is open, or begins with its next statement.
func lend(conn *sql.Conn) (*loan, error) {
	lent := &lentConn{}
	err := conn.Raw(func(pooled any) (err error) {
		lent.statementConn, err = statementsOf(pooled)
		return err
	})
	if err != nil {
		return nil, err
	}
	lent.ending = context.Background()
	l := &loan{db: sql.OpenDB(lent), conn: lent}
	if l.tx, err = l.db.BeginTx(context.Background(), nil); err != nil {
		_ = l.db.Close()
		return nil, err
	}
	return l, nil
}

// end closes the transaction's handle and sends nothing: the session has ended the transaction
// itself.
func (l *loan) end() {
	l.conn.ended = true
	_ = l.tx.Rollback()
	_ = l.db.Close()
}

// lentConn is the one connection of a loan, and the connector that gives it out.
type lentConn struct {
	freeConn
	ended bool
}

// Connect implements driver.Connector.
func (c *lentConn) Connect(context.Context) (driver.Conn, error) { return c, nil }

// Driver implements driver.Connector.
func (c *lentConn) Driver() driver.Driver { return nil }

// Close implements driver.Conn. The connection is the pool's to close.
func (c *lentConn) Close() error { return nil }

// BeginTx implements driver.ConnBeginTx.
func (c *lentConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return lentTx{c}, nil
}

// lentTx is ended by the work itself, if anybody: the session's end finds that its savepoint is
// gone.
type lentTx struct{ conn *lentConn }

func (t lentTx) Commit() error { return t.conn.end("COMMIT") }

func (t lentTx) Rollback() error {
	if t.conn.ended {
		return nil
	}
	return t.conn.end("ROLLBACK")
}
