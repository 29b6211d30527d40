// Package mysql holds locks in MySQL, 8.0.1 and later, and MariaDB, 10.6 and later, through
// go-sql-driver/mysql: on a sql.DB of the caller's ([New]) or of its own ([Open]). A session shows
// what it locks in a comment of the locking statement, and of each heartbeat.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	library "github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/statements"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/inspection"
	"github.com/txlock/txlock/dialects/mysql/internal/installation"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/internal/label"
)

// Driver holds locks on connections of a sql.DB, in sessions that speak *sql.Tx. It implements
// dialects.Driver.
type Driver struct {
	inspector
	drawing  sync.Mutex // one token at a time, on Galera: else a busy node leaves others no turn
	inInnoDB sync.Map   // names of tables whose rows the server is known to lock
}

type inspector = inspection.Inspector

var _ dialects.Driver[*sql.Tx] = (*Driver)(nil)

// New returns a driver on the caller's db, which Close does not close, and sends nothing. Each
// statement travels alone, so it costs more round trips than [Open]. A transaction that is open on
// a connection of db is committed before the lock, as BeginTx would. A loss is noticed by the
// heartbeat, or the next statement: go-sql-driver shows no socket. To end a call by its ctx takes a
// second connection for a moment; where db has none, the call's is closed. A readTimeout in the DSN
// ends waits. A nil db is an error from the first call that can return one.
func New(db *sql.DB) *Driver { return &Driver{inspector: inspector{Pool: client.New(db)}} }

// Open returns a driver with a pool of its own, which Close closes, and reaches the server once.
// Dsn is a data source name as go-sql-driver/mysql takes it. Its parameter pool_max_conns, which no
// other program knows, is the most connections that the pool opens, 16 by default; a wait that is
// cancelled takes one more for a moment. The connections run with autocommit=0 at READ COMMITTED,
// wait for row locks as long as the context allows, without a readTimeout, take several statements
// in one query, and write nothing to stderr when they break. After an error nothing is left open.
func Open(ctx context.Context, dsn string) (*Driver, error) {
	pool, err := client.Open(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("txlock: open MySQL: %w", err)
	}
	return &Driver{inspector: inspector{Pool: pool}}, nil
}

// Info implements dialects.Driver. The server's timer counts whole seconds.
func (d *Driver) Info() dialects.Info {
	info := dialects.Info{System: "mysql", MinLease: time.Second, Layout: installation.Layout}
	if d == nil || d.Pool == nil || d.Pool.DB == nil {
		info.Err = errors.New("nil database: give mysql.New a *sql.DB")
		return info
	}
	info.PoolSize, info.Layout = d.Pool.DB.Stats().MaxOpenConnections, d.layout
	return info
}

// layout has the server's identity asked for anew: a group may have another mode now.
func (d *Driver) layout(table string) (dialects.Layout, error) {
	d.Pool.Identified.Store(false)
	layout, err := installation.Layout(table)
	layout.Kinds = func(name string) (dialects.Kinds, error) { return installation.Of(name, d.Pool.Galera.Load()) }
	return layout, err
}

// Begin implements dialects.Driver.
func (d *Driver) Begin(ctx context.Context, request dialects.Request) (_ dialects.Session[*sql.Tx],
	got dialects.Grant, err error,
) {
	var s *session
	err = d.numbered(ctx, request.Fence, func() (err error) {
		s = &session{driver: d, request: request, label: label.Begin + request.Label}
		got, err = s.begin(ctx)
		return err
	})
	if err == nil && request.Work.IsExec() && got.Affected == nil {
		got.Affected, err = statements.Finish(s, request, nil, s.runAll)
	}
	if err != nil || request.Work.IsExec() {
		return nil, got, err
	}
	return s, got, nil
}

// LockTx implements dialects.Driver.
//
// At REPEATABLE READ, InnoDB takes the transaction's snapshot at the first plain SELECT, not at a
// locking one. LockTx cannot check that: the server does not tell whether there is one.
func (d *Driver) LockTx(ctx context.Context, tx *sql.Tx, request dialects.Request) error {
	if tx == nil {
		return errors.New("nil transaction")
	}
	s := &session{driver: d, Conn: client.Guest(tx), joined: true, patience: interrupt.GuestPatience}
	clean, cancel := interrupt.Detached(ctx) // the connection is closed when ctx ends
	defer cancel()
	err := d.Pool.Identify(clean, s.Conn)
	if err == nil {
		err = s.inTransaction(clean, readOnly)
	}
	if err != nil {
		return server.Classify(err, request)
	}
	_, err = s.joinRows(ctx, request, "")
	return err
}

// readOnly is a characteristic of transactions. It cannot be changed in one.
const readOnly = "/*!80001 @@transaction_read_only */ /*M! @@tx_read_only */"

// inTransaction is an error unless the server is in a transaction, which refuses to have readOnly
// set to value, or was interrupted, which shows no end of it. An idle session shows the label.
//
// The handle of a transaction does not know when COMMIT as text, DDL, or a deadlock has ended that.
// With autocommit the server would then release each row in the statement that locks it, and
// without it a lock would begin another transaction: the answer must not depend on that.
func (s *session) inTransaction(ctx context.Context, value string) error {
	err := s.exec(ctx, "SET "+server.Comment(s.label, "")+readOnly+" = "+value)
	switch {
	case err == nil:
		return fmt.Errorf("%w: the transaction has ended, by a statement that commits implicitly (as DDL), by COMMIT "+
			"or ROLLBACK as text, or by a deadlock; nothing was changed since", dialects.ErrLost)
	case server.Number(err) == server.InTransaction, server.Interrupted(err):
		return nil
	case errors.Is(err, library.ErrBusyBuffer):
		return server.ErrBusy
	case server.Broken(err), ctx.Err() != nil:
		return server.Lost(err)
	}
	return err
}

// Classify implements dialects.Driver.
func (d *Driver) Classify(err error) dialects.Outcome { return server.Outcome(err) }

// Close implements dialects.Driver. It closes the pool of Open.
func (d *Driver) Close() error {
	if d != nil && d.Pool != nil {
		d.Pool.Close()
	}
	return nil
}

// Run implements dialects.Driver.
func (d *Driver) Run(ctx context.Context, q dialects.Query, in ...*sql.Tx) (lines []string, err error) {
	s := &session{driver: d}
	if len(in) > 0 {
		s.Conn, s.patience = client.Guest(in[0]), interrupt.GuestPatience
		if err := s.lockable(ctx, dialects.Request{Table: q.Table}); err != nil {
			return nil, err
		}
		return s.run(ctx, q)
	}
	if err = s.acquire(ctx); err != nil {
		return nil, err
	}
	defer s.close()
	var settings []string
	if q.Reads { // it skips what is locked, also where the session would not wait, and may read a million slots
		settings = append(settings, server.SomeWait, "max_statement_time=0")
		if d.Pool.Galera.Load() { // it reads what other nodes have committed
			settings = append(settings, "wsrep_sync_wait=1")
		}
	}
	// On a caller's pool they go one by one, and this process may stop in between: hence the lease.
	script, begin, end := installation.StatementsOf(q), guardSQL+leaseSQL(interrupt.CleanUp), commitAndRestore
	if s.Owned != nil { // where a function that work has called may have set another level
		begin, end = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "COMMIT"
	}
	err = d.Pool.Await(ctx, false, s.patience, s.cut, func(ctx context.Context, tag string) (err error) {
		front := server.OnMariaDB(settings...) + server.Comment("", tag)
		if q.Reads && s.Owned == nil { // few sessions need other settings
			if lines, err = s.Ask(ctx, front+readsNow(script[0])); err == nil {
				return nil
			}
		}
		for i := range script {
			script[i] = front + script[i]
		}
		lines, err = s.Ask(ctx, slices.Concat([]string{begin}, script, []string{end})...)
		return err
	})
	if err != nil {
		clean, cancel := interrupt.Detached(ctx)
		defer cancel()
		_ = s.rollback(clean, "ROLLBACK")
	}
	return lines, server.Ours(err, q.Table)
}

// readsNow is a query in a UNION with no row, which is an error where the session may read what an
// older transaction sees, at autocommit=0, or what others have not committed.
func readsNow(query string) string {
	if !strings.HasPrefix(query, "(") {
		query = "(" + query + ")"
	}
	return "(SELECT NULL FROM DUAL WHERE IF(@@autocommit AND " + server.Isolation + " <> 'READ-UNCOMMITTED', 0, " +
		"(SELECT 1 UNION ALL SELECT 2))) UNION ALL " + query
}

// Run implements dialects.Session. Without autocommit, what it writes behind the end of the
// transaction is committed by nobody: work may have set it.
func (s *session) Run(ctx context.Context, q dialects.Query) ([]string, error) {
	return s.run(ctx, q, "SET autocommit = 0")
}

func (s *session) run(ctx context.Context, q dialects.Query, front ...string) ([]string, error) {
	clean, cancel := interrupt.Detached(ctx) // the connection is closed when ctx ends
	defer cancel()
	lines, err := s.Ask(clean, append(front, installation.StatementsOf(q)...)...)
	if server.Broken(err) {
		return nil, server.Lost(err)
	}
	return lines, server.Ours(err, q.Table)
}
