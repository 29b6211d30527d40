package client

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects/internal/sqlconn"
	"github.com/txlock/txlock/dialects/internal/statements"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/internal/peer"
)

// connector opens the connections of a pool of Open.
type connector struct{ config *mysql.Config }

// Settings gives a connection of Open its settings. A lease may follow. With autocommit = 0 the
// first statement begins a transaction, without a trip for BEGIN, and behind a deadlock, whose
// error the work may swallow, statements do not commit one by one.
const Settings = "SET autocommit = 0, " + server.LongWait + ", " + server.AtReadCommitted + ", " +
	"/*!80001 @@session.transaction_read_only */ /*M! @@session.tx_read_only */ = 0"

func (connector) Driver() driver.Driver { return &mysql.MySQLDriver{} }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, config := &owned{}, c.config.Clone()
	config.MultiStatements = true
	// The answer to a lock comes when it is granted. A dead network shows without the timeout.
	config.ReadTimeout = 0
	if config.Net == "tcp" || config.Net == "unix" { // else it is the caller's to open
		config.DialFunc = func(ctx context.Context, network, address string) (_ net.Conn, err error) {
			conn.socket, err = new(net.Dialer).DialContext(ctx, network, address)
			return conn.socket, err
		}
	}
	inner, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	opened, err := inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn.pooledConn = opened.(pooledConn)
	if _, err = conn.pooledConn.ExecContext(ctx, Settings, nil); err != nil {
		_ = opened.Close()
		return nil, fmt.Errorf("set up session: %w", err)
	}
	return conn, nil
}

// pooledConn is a connection of go-sql-driver/mysql, with what database/sql uses of it.
type pooledConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter // finds a connection that died while it was idle
	driver.Validator
}

// owned is a connection of a pool of Open. Its transaction begins by itself, and the session ends
// it: to begin one and to end it sends nothing here.
type owned struct {
	pooledConn
	Lease  time.Duration // that the server keeps; 0: nobody knows the settings
	Strays atomic.Bool   // the work may have left a lock of the server's, or changed a setting
	socket net.Conn      // nil when it cannot be seen
	thread *Thread       // nil: it was not asked
}

// BeginTx is called behind the lock, before work runs.
func (c *owned) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	c.Strays.Store(false)
	return ownedTx{}, nil
}

// ownedTx is the transaction. Of work that ends it, database/sql runs no more statements.
type ownedTx struct{}

func (ownedTx) Commit() error {
	return errors.New("the transaction is that of the lock, and commits when the work returns nil")
}

func (ownedTx) Rollback() error { return nil }

// ours, in a context, says that a statement is not the work's.
type ours struct{}

// watch has the connection closed behind work that may have left a lock of the server's or another
// setting: with autocommit, a lock would end with its statement. To set all again costs 35 µs.
func (c *owned) watch(ctx context.Context, query string) {
	c.Strays.CompareAndSwap(false, ctx.Value(ours{}) == nil && !isPlain(query))
}

func (c *owned) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.watch(ctx, query)
	return c.pooledConn.ExecContext(ctx, query, args)
}

func (c *owned) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.watch(ctx, query)
	return c.pooledConn.QueryContext(ctx, query, args)
}

func (c *owned) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.watch(ctx, query)
	return c.pooledConn.PrepareContext(ctx, query)
}

// isPlain tells whether a statement leaves no setting and no lock behind, but for what it calls.
func isPlain(query string) bool {
	return plain.MatchString(statements.Bare(query)) && !getLock.MatchString(query)
}

var (
	plain = regexp.MustCompile(`(?i)^[\s(]*(select|insert|update|delete|replace|with|savepoint|release|` +
		`rollback\s+to|show)\b[^;]*$`)
	getLock = regexp.MustCompile(`(?i)\bget_lock\b`)
)

// Conn is where statements go: a connection of a pool, or a transaction of the caller's. Several
// travel in one query on a connection of Open, and one after the other elsewhere, up to the first
// that fails. Empty ones are left out.
type Conn struct {
	*sqlconn.Conn
	Owned *owned // of a pool of Open
}

// Guest is a transaction of the caller's.
func Guest(tx *sql.Tx) Conn { return Conn{Conn: sqlconn.Guest(tx)} }

// QueryContext implements sqlconn.Querier, for what is not the work's.
func (c Conn) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return c.Querier().QueryContext(context.WithValue(ctx, ours{}, true), query, args...)
}

// ExecContext implements sqlconn.Querier, for what is not the work's.
func (c Conn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return c.Querier().ExecContext(context.WithValue(ctx, ours{}, true), query, args...)
}

// Busy is ErrBusy while rows of the work are open. To send something then costs the connection.
func (c Conn) Busy() (err error) {
	if !(peer.Conn{Conn: c.Socket}).Gone() {
		_ = c.Raw(func(pooled any) error {
			if conn, is := pooled.(driver.Validator); is && !conn.IsValid() {
				err = server.ErrBusy
			}
			return nil
		})
	}
	return err
}

const separator = "; " // which no statement has in front of its tag

func (c Conn) queries(statements []string) []string {
	given := slices.DeleteFunc(slices.Clone(statements), func(text string) bool { return text == "" })
	if c.Owned != nil {
		return []string{strings.Join(given, separator)}
	}
	return given
}

// Run returns how many rows the last statement has affected.
func (c Conn) Run(ctx context.Context, statements ...string) (affected int64, err error) {
	for _, query := range c.queries(statements) {
		result, err := c.ExecContext(ctx, query)
		if err != nil {
			return 0, err
		}
		if affected, err = result.RowsAffected(); err != nil {
			return 0, err
		}
	}
	return affected, nil
}

// Ask returns the first column of the rows of the first statement that may have rows.
func (c Conn) Ask(ctx context.Context, statements ...string) ([]string, error) {
	return sqlconn.Column(c.Grids(ctx, statements...))
}

// Grid returns all of a query's rows.
func (c Conn) Grid(ctx context.Context, query string) ([][]string, error) {
	grids, err := c.Grids(ctx, query)
	if err != nil || len(grids) == 0 {
		return nil, err
	}
	return grids[0], nil
}

// Grids returns the rows of each statement that may have rows, up to the first that fails.
func (c Conn) Grids(ctx context.Context, statements ...string) (grids [][][]string, err error) {
	for _, query := range c.queries(statements) {
		more, err := sqlconn.Grids(c.QueryContext(ctx, query))
		if grids = append(grids, more...); err != nil {
			return grids, err
		}
	}
	return grids, nil
}
