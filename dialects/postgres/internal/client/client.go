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
	Take(ctx context.Context) (Conn[Tx], error)  // the connection may have died while it was idle
	In(ctx context.Context, tx Tx) (Line, error) // to the transaction of a caller's
	Size() int                                   // most connections; 0: as many as are asked for
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
	Tx() Tx // as work gets it
	// Commit runs a script that begins with a proof, and commits. An error that matches
	// dialects.ErrLost means that nothing is committed.
	Commit(ctx context.Context, s sqltext.Script) error
	// Rollback ends the library's transaction, if there is one.
	Rollback(ctx context.Context) error
	// Destroy closes the connection, so that the server ends its session. It is given back all the
	// same.
	Destroy()
	GiveBack()
	Status() Status
}

// Status is the state of a session, as far as it is known without asking the server.
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

// Begin and Commit enclose a script in a transaction of the library's.
var (
	Begin  = sqltext.Statement{SQL: "begin isolation level read committed read write", Silent: true, Opens: true}
	Commit = sqltext.Silent("commit")
)

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
