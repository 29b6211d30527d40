// Package client has the connections of database/sql and go-sql-driver/mysql. It knows no locks.
package client

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/sqlconn"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// Pool is where connections come from, and what is known of its servers.
type Pool struct {
	DB      *sql.DB
	Control *sql.DB // where waits are interrupted from; DB itself on a caller's pool

	Galera     atomic.Bool // the server is a node of a Galera cluster of MariaDB
	Identified atomic.Bool // the server was asked who it is, and was not refused
}

// New returns the pool of the caller's db.
func New(db *sql.DB) *Pool { return &Pool{DB: db, Control: db} }

// Open does what Open of the dialect promises.
func Open(ctx context.Context, dsn string) (*Pool, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("%w (give user:password@tcp(host:3306)/database)", err)
	}
	const parameter = "pool_max_conns" // as pgxpool calls it
	limit := 16                        // has room for nine processes beside MySQL's default of 151 connections
	if text, given := config.Params[parameter]; given {
		delete(config.Params, parameter) // the driver would set it as a variable of the server
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 {
			return nil, fmt.Errorf("%s=%s: must be a number of connections, at least 1", parameter, text)
		}
	}
	config.Logger = &mysql.NopLogger{} // no dsn can set it
	plain, err := mysql.NewConnector(config.Clone())
	if err != nil {
		return nil, err
	}
	p := &Pool{DB: sql.OpenDB(connector{config}), Control: sql.OpenDB(plain)}
	p.DB.SetMaxOpenConns(limit)
	p.DB.SetMaxIdleConns(limit)               // with database/sql's 2, the pool would reconnect under load
	p.DB.SetConnMaxIdleTime(30 * time.Minute) // as pgxpool has it
	p.Control.SetMaxIdleConns(-1)
	if err = p.DB.PingContext(ctx); err != nil {
		p.Close()
	}
	return p, err
}

// Close closes a pool of Open. That a server has closed an idle connection before is no error.
func (p *Pool) Close() {
	if p.Control != p.DB {
		_ = p.DB.Close()
		_ = p.Control.Close()
	}
}

// Acquire takes a connection from the pool, to a server that is not refused.
func (p *Pool) Acquire(ctx context.Context) (c Conn, err error) {
	if c.Conn, err = sqlconn.Take(ctx, p.DB, c.find); err != nil {
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

// find is what Take is given.
func (c *Conn) find(to *sqlconn.Conn, pooled any) (known bool) {
	if c.Owned, known = pooled.(*owned); known {
		to.Socket = c.Owned.socket
	}
	// Behind a goodbye a router may keep the session, with all that is locked in it.
	to.Farewell = "KILL CONNECTION_ID()"
	return known
}

// With runs work on a connection of the pool. What that was left with is committed, as START
// TRANSACTION would, and what work leaves open is rolled back.
func (p *Pool) With(ctx context.Context, work func(Conn) error) error {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.GiveBack()
	if conn.Owned == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	if err == nil {
		err = work(conn)
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	if _, failed := conn.ExecContext(clean, "ROLLBACK"); failed != nil {
		conn.Destroy() // with whatever was open on it
	}
	return err
}

// identitySQL asks who the server is. It leaves out the variables that it does not have.
const identitySQL = "SHOW VARIABLES WHERE Variable_name IN (" +
	"'version', 'version_comment', 'log_bin', 'binlog_format', 'wsrep_on', " +
	"'wsrep_provider', 'group_replication_group_name', 'group_replication_single_primary_mode')"

// Identify refuses a server that is known not to exclude. It asks until one was not refused, and
// then no more: all servers of a pool are alike. One that does not take the question is an unknown
// one. Where the question came in a bad moment, as in a transaction that another has ended, nothing
// is known: a lock on Galera would be one of its node alone.
func (p *Pool) Identify(ctx context.Context, c Conn) error {
	if p.Identified.Load() {
		return nil
	}
	lines, err := c.Grid(ctx, identitySQL)
	if server.Interrupted(err) { // once, by what was meant for the statement before
		lines, err = c.Grid(ctx, identitySQL)
	}
	if err != nil && (server.Number(err) == 0 || server.Outcome(err) != dialects.Final) {
		return err
	}
	identity := map[string]string{}
	for _, line := range lines {
		identity[line[0]] = line[1]
	}
	galera, err := refuse(identity)
	if err == nil { // else it is not what others on this pool may be locking on
		p.Galera.Store(galera)
		p.Identified.Store(true)
	}
	return err
}

// refuse is an error for a server that is known not to exclude, else it says whether that is a node
// of Galera. Others are left to the proof of Check.
//
// TiDB keeps locks in memory alone, and loses them when a store fails or after an hour, and COMMIT
// goes on (pingcap/tidb#66571, #69720). In Vitess a KILL QUERY may hit another client. A binary log
// of statements alone would take REPEATABLE READ: work may read what is older than its second lock.
func refuse(identity map[string]string) (galera bool, err error) {
	const oneNode = ", where row locks exclude the sessions of one node only"
	version, provider, what := identity["version"], identity["wsrep_provider"], ""
	galera = provider != "" && provider != "none"
	switch {
	case strings.Contains(version, "TiDB"):
		what = "TiDB, which can lose a lock while its holder goes on to COMMIT"
	case strings.Contains(strings.ToLower(version+identity["version_comment"]), "vitess"):
		what = "Vitess, which ends transactions by a timer of its own, and keeps no lease (wait_timeout)"
	case identity["version_comment"] == "Dolt":
		what = "Dolt or go-mysql-server, which takes FOR UPDATE and locks nothing"
	case galera && !strings.Contains(version, "MariaDB"):
		what = "a node of a Galera cluster of MySQL" + oneNode + ": txlock knows that of MariaDB only"
	case galera && identity["wsrep_on"] == "OFF":
		what = "a server with a wsrep_provider, and the session has wsrep_on = OFF: its locks would not reach the " +
			"other nodes of a Galera cluster (where there is none, set wsrep_provider = none)"
	case identity["group_replication_group_name"] != "" && identity["group_replication_single_primary_mode"] == "OFF":
		what = "a node of a replication group in multi-primary mode" + oneNode
	case identity["log_bin"] == "ON" && identity["binlog_format"] == "STATEMENT":
		what = "a server with binlog_format = STATEMENT, with which it locks no row at READ COMMITTED: set it to ROW " +
			"or MIXED, in the server's configuration and by SET GLOBAL, and connect anew"
	default:
		return galera, nil
	}
	return galera, fmt.Errorf("%w: this is %s (version %s)", dialects.ErrUnsafeEngine, what, version)
}
