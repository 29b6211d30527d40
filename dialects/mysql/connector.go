package mysql

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

// connector opens the connections of a pool that Open owns. Their settings save round trips and close a hole:
//
//   - autocommit=0: the first statement begins a transaction, without a trip for BEGIN; and after a deadlock, whose
//     error the work may swallow, its next statements are in a transaction again instead of committing one by one.
//   - READ COMMITTED: what is read under a lock is never older than the lock.
//   - innodb_lock_wait_timeout: a waiter stays in the queue as long as its context allows, not for 50 s.
type connector struct {
	driver.Connector
}

const sessionSettings = "SET autocommit = 0, innodb_lock_wait_timeout = 1073741824; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"

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
	inner, ok := opened.(driverConn)
	if !ok {
		_ = opened.Close()
		return nil, fmt.Errorf("bug: %T lacks a method of go-sql-driver's connections", opened)
	}
	if _, err := inner.ExecContext(ctx, sessionSettings, nil); err != nil {
		_ = inner.Close()
		return nil, fmt.Errorf("set up session: %w", err)
	}
	return &ownedConn{driverConn: inner, ending: context.Background()}, nil
}

// driverConn is what a connection of go-sql-driver/mysql can do.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.SessionResetter
	driver.Validator
	driver.Pinger
}

// ownedConn is a connection of a pool that Open owns. Its transactions begin for free.
type ownedConn struct {
	driverConn
	ending context.Context // bounds COMMIT and ROLLBACK, which database/sql calls without a context
}

func (c *ownedConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	c.ending = context.Background()
	return ownedTx{c}, nil
}

type ownedTx struct{ conn *ownedConn }

// Commit commits the transaction that set the savepoint, and no other: where RELEASE SAVEPOINT fails, the server does
// not run the statement behind it.
func (t ownedTx) Commit() error { return t.conn.end("RELEASE SAVEPOINT " + savepoint + "; COMMIT") }

func (t ownedTx) Rollback() error { return t.conn.end("ROLLBACK") }

func (c *ownedConn) end(query string) error {
	_, err := c.ExecContext(c.ending, query, nil)
	return err
}
