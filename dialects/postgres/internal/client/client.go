// Package client is the way to the server: pools and connections as pgx, database/sql and other
// drivers present them, and how a script travels on a connection. It knows nothing of locks.
package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"time"

	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/identifier"
)

// Pool is where a client library keeps its connections.
type Pool[Tx any] interface {
	// Take takes a connection, which may have died while it was idle.
	Take(ctx context.Context) (Conn[Tx], error)
	// In is the line to the transaction of a caller's.
	In(ctx context.Context, tx Tx) (Line, error)
	// Size is how many connections it may have; 0: as many as are asked for.
	Size() int
}

// Conn is a connection of a pool.
type Conn[Tx any] struct {
	Line
	Transaction[Tx]
}

// Transaction is the only one on a connection of a pool, as a client library presents both.
type Transaction[Tx any] interface {
	// Begin runs a script that begins a transaction. After an error it may be open: Rollback ends
	// it.
	Begin(ctx context.Context, s sqltext.Script) ([][]string, error)
	// Tx is the transaction as work gets it.
	Tx() Tx
	// Commit runs a script that begins with a proof, and commits. An error that matches
	// dialects.ErrLost means that nothing is committed.
	Commit(ctx context.Context, s sqltext.Script) error
	// Rollback ends the library's transaction, if there is one.
	Rollback(ctx context.Context) error
	// Destroy closes the connection, so that the server ends its session. It is given back all the
	// same.
	Destroy()
	// GiveBack gives the connection back to its pool.
	GiveBack()
	// Status is the state of the session, as far as it is known without asking the server.
	Status() Status
}

// Status is the state of a session.
type Status byte

// The states of a session, as the server reports them.
const (
	Closed Status = 0 // the connection is
	Idle   Status = 'I'
	Failed Status = 'E' // the transaction is aborted
	Busy   Status = 'B' // with rows that were not read
	Open   Status = '?' // of which no more is known
)

// Line runs scripts on one connection, whichever client library it belongs to.
type Line struct {
	// Run sends a script, in one round trip where it can, and returns the first column of each
	// statement's rows. After an error no statement behind the failed one has run.
	Run func(ctx context.Context, s sqltext.Script) ([][]string, error)
	// Interrupt ends the statement that is running, from outside the connection.
	Interrupt func(ctx context.Context) error
	// Cut closes the connection under a statement that interrupts do not end; nil: the end of the
	// statement's context does.
	Cut    func()
	Socket net.Conn

	Carries bool   // a script that begins a transaction may have statements of the caller's
	Tag     string // begins statements of the caller's, by which Interrupt finds them
}

// Exec runs statements without arguments, in one simple query.
func (l Line) Exec(ctx context.Context, statements string) error {
	_, err := l.Run(ctx, sqltext.Script{sqltext.Silent(statements)})
	return err
}

var (
	// Begin opens a script in a transaction of the library's.
	Begin = sqltext.Statement{SQL: "begin isolation level read committed read write", Silent: true, Opens: true}
	// Commit ends one.
	Commit = sqltext.Silent("commit")
)

// Savepoint opens a script in a transaction that has more to lose. Each that is open has a name of
// its own: who comes back to one that was never set must not come back to another.
type Savepoint string

// InCallers is that in a transaction of the caller's.
const InCallers Savepoint = "txlock_wait"

// Set sets it.
func (s Savepoint) Set() sqltext.Statement {
	return sqltext.Statement{SQL: "savepoint " + string(s), Silent: true, Opens: true}
}

// Inner is another one, for the work with what is locked in s. It ends with s.
func (s Savepoint) Inner() Savepoint { return s + "_work" }

// Undo comes back to it.
func (s Savepoint) Undo() sqltext.Statement { return sqltext.Silent("rollback to " + string(s)) }

// Release ends it.
func (s Savepoint) Release() sqltext.Statement { return sqltext.Silent("release " + string(s)) }

// MarkSetting holds the mark: a value that lives as long as the transaction, and that no other has.
const MarkSetting = "txlock.held"

// Proof is in front of COMMIT. In any transaction but the one that holds the mark it fails by a
// division by zero, and COMMIT is not reached.
func Proof(mark string) sqltext.Statement {
	return sqltext.With("select 1 / (pg_catalog.current_setting('"+MarkSetting+"', true) is not distinct from $1)::int",
		mark)
}

// CheckSQL is how long a dead waiter may stay in the queue.
const CheckSQL = "'500ms'"

// LeaseSQL sets what ends a session whose client is gone, as long as the transaction lasts.
//
// The server's timer counts idle time; where a client has stopped reading a large result, its
// kernel counts. The server looks now and then whether a waiter's client is still there, else a
// dead one would stay in the queue. It starts that timer with a statement, so this one comes first.
func LeaseSQL(lease string) string {
	return sqltext.Set("idle_in_transaction_session_timeout", lease) + ", " + sqltext.Set("tcp_user_timeout", lease) +
		", " + sqltext.Set("client_connection_check_interval", CheckSQL)
}

// ErrRowsOpen says that nothing can be sent, and nothing is lost.
var ErrRowsOpen = errors.New("rows of a query in the same transaction are still open: read them to the end, or close " +
	"them, first")

// cancelSQL cancels a statement that carries tag, from another connection: the driver has no cancel
// request, or the login told no key for one, as that of RDS Proxy. It has no arguments: with them,
// some drivers prepare it in a round trip of its own, and outside a transaction a pooler may then
// execute what somebody else has prepared.
func cancelSQL(tag string) string {
	return identifier.Qualified("select pg_cancel_backend(pid) from pg_stat_activity where state = 'active' and " +
		"strpos(query, " + sqltext.Literal(tag) + ") > 0 and pid <> pg_backend_pid()")
}

// beside sends a text on another connection of a pool, if that has one to give in time. There may
// be none: the server is slow, or the pool is full.
func beside[Tx any](ctx context.Context, pool Pool[Tx], limit time.Duration, text string) error {
	brief, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := pool.Take(brief)
	if err != nil {
		return cmp.Or(ctx.Err(), interrupt.ErrNoConnection)
	}
	defer conn.GiveBack()
	return conn.Exec(ctx, text)
}

// newTag begins statements, so that another session finds this one by what it runs. A wrapper may
// put a comment of its own in front.
func newTag() string { return sqltext.Tag + rand.Text() + " */ " }
