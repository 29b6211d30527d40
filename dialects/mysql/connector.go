package mysql

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
)

// connector opens the connections of a pool that Open owns. Their settings save round trips and
// close a hole:
//
//   - autocommit=0: the first statement begins a transaction, without a trip for BEGIN; and after a
//     deadlock, whose error the work may swallow, its next statements are in a transaction again
//     instead of committing one by one.
//   - READ COMMITTED: what is read under a lock is never older than the lock.
//   - innodb_lock_wait_timeout: a waiter stays in the queue as long as its context allows, not for
//     50 s.
type connector struct {
	driver.Connector
}

const sessionSettings = "SET autocommit = 0, " + longWait + "; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"

func newConnector(config *mysql.Config) (driver.Connector, error) {
	config.MultiStatements = true
	inner, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return connector{inner}, nil
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	inner, err := statementsOf(opened)
	if err != nil {
		_ = opened.Close()
		return nil, err
	}
	if _, err := inner.ExecContext(ctx, sessionSettings, nil); err != nil {
		_ = inner.Close()
		return nil, fmt.Errorf("set up session: %w", err)
	}
	return &ownedConn{freeConn: freeConn{statementConn: inner, ending: context.Background()}}, nil
}

// statementConn is what sessions use of a connection of go-sql-driver/mysql, or of what a program
// has wrapped around one.
type statementConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

func statementsOf(conn any) (statementConn, error) {
	if statements, ok := conn.(statementConn); ok {
		return statements, nil
	}
	return nil, fmt.Errorf("txlock needs connections of go-sql-driver/mysql; %T lacks methods of theirs", conn)
}

// freeConn is a connection whose transactions begin for free: autocommit is off.
type freeConn struct {
	statementConn
	ending context.Context // of COMMIT and ROLLBACK, which database/sql calls without a context
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *freeConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.statementConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

func (c *freeConn) end(query string) error {
	_, err := c.ExecContext(c.ending, query, nil)
	return err
}

// ownedConn is a connection of a pool that Open owns.
type ownedConn struct {
	freeConn
	lease time.Duration // that the server keeps
	fence string        // whose run is in the session's variable; empty: none
}

// BeginTx implements driver.ConnBeginTx.
func (c *ownedConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	c.ending = context.Background()
	return ownedTx{c}, nil
}

// ResetSession implements driver.SessionResetter: it finds a connection that died while it was
// idle.
func (c *ownedConn) ResetSession(ctx context.Context) error {
	if resetter, ok := c.statementConn.(driver.SessionResetter); ok {
		return resetter.ResetSession(ctx)
	}
	return nil
}

// IsValid implements driver.Validator.
func (c *ownedConn) IsValid() bool {
	validator, ok := c.statementConn.(driver.Validator)
	return !ok || validator.IsValid()
}

// Ping implements driver.Pinger.
func (c *ownedConn) Ping(ctx context.Context) error {
	if pinger, ok := c.statementConn.(driver.Pinger); ok {
		return pinger.Ping(ctx)
	}
	return nil
}

type ownedTx struct{ conn *ownedConn }

// Commit commits the transaction that set the savepoint, and no other: where RELEASE SAVEPOINT
// fails, the server does not run the statement behind it.
func (t ownedTx) Commit() error { return t.conn.end("RELEASE SAVEPOINT " + savepoint + "; COMMIT") }

func (t ownedTx) Rollback() error { return t.conn.end("ROLLBACK") }
