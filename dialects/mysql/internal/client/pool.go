// Package client has the connections to a server, as database/sql and go-sql-driver/mysql present
// them. It knows nothing of locks.
package client

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/sqlconn"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// Pool is where connections come from, and what is known of the servers that it leads to.
type Pool struct {
	DB      *sql.DB
	Control *sql.DB // where waits are interrupted from; DB itself on a caller's pool
	Owned   bool    // it is one of Open

	Mute       atomic.Bool // no variable is set, because the server shows them to nobody
	Galera     atomic.Bool // the server is a node of a Galera cluster of MariaDB
	identified atomic.Bool // the server was asked who it is, and was not refused
}

// New returns the pool of the caller's db.
func New(db *sql.DB) *Pool { return &Pool{DB: db, Control: db} }

// Open does what Open of the dialect promises.
func Open(ctx context.Context, dsn string) (*Pool, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	limit, err := poolLimit(config)
	if err != nil {
		return nil, err
	}
	config.Logger = &mysql.NopLogger{} // no dsn can set it
	plain, err := mysql.NewConnector(config.Clone())
	if err != nil {
		return nil, err
	}
	settled, err := newConnector(config)
	if err != nil {
		return nil, err
	}
	p := &Pool{DB: sql.OpenDB(settled), Control: sql.OpenDB(plain), Owned: true}
	p.DB.SetMaxOpenConns(limit)
	p.DB.SetMaxIdleConns(limit) // with database/sql's 2, the pool would reconnect under load
	p.DB.SetConnMaxIdleTime(idleTime)
	p.Control.SetMaxIdleConns(-1)
	if err := p.DB.PingContext(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close closes a pool of Open.
func (p *Pool) Close() error {
	if !p.Owned {
		return nil
	}
	return errors.Join(p.DB.Close(), p.Control.Close())
}

const (
	limitParameter = "pool_max_conns" // as pgxpool calls it
	// defaultLimit leaves room for nine processes on a server with MySQL's default of 151
	// connections.
	defaultLimit = 16
	idleTime     = 30 * time.Minute // as pgxpool has it
)

// poolLimit takes out of config how many connections the pool may open.
func poolLimit(config *mysql.Config) (int, error) {
	text, given := config.Params[limitParameter]
	if !given {
		return defaultLimit, nil
	}
	delete(config.Params, limitParameter) // the driver would set it as a variable of the server
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 {
		return 0, fmt.Errorf("%s=%s: must be a number of connections, at least 1", limitParameter, text)
	}
	return limit, nil
}

// Acquire takes a connection from the pool, to a server that is not refused.
func (p *Pool) Acquire(ctx context.Context) (c Conn, err error) {
	c.Conn, err = sqlconn.Take(ctx, p.DB, func(to *sqlconn.Conn, pooled any) (known bool) {
		if c.Owned, known = pooled.(*Owned); known {
			to.Socket = c.Owned.socket
		}
		return known
	})
	if err != nil {
		return c, err
	}
	identified := false
	defer func() {
		if !identified { // the client library may have panicked
			c.Destroy()
		}
	}()
	err = server.Classify(p.Identify(ctx, c), dialects.Request{Ours: true})
	identified = err == nil
	return c, err
}

// With runs work on a connection of the pool, and rolls back what it leaves open. What the
// connection was left with is committed, as START TRANSACTION would.
func (p *Pool) With(ctx context.Context, work func(*sql.Conn) error) error {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if !p.Owned {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	if err == nil {
		err = work(conn.Conn.Conn)
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	if _, failed := conn.ExecContext(clean, "ROLLBACK"); failed != nil {
		conn.Destroy() // with whatever was open on it
	}
	return err
}
