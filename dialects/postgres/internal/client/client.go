// Package client is the way to the server: pools and connections as pgx, database/sql and other
// drivers present them, and how a script travels on a connection. It knows nothing of locks.
package client

import (
	"context"

	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// Pool is where a client library keeps its connections.
type Pool[Tx any] interface {
	Ready() error
	Size() int // 0: without a limit
	// Acquire takes a connection that is alive and outside a transaction.
	Acquire(ctx context.Context) (Conn[Tx], error)
	// In is the line to the transaction of a caller's. Answers says that it must not be blind.
	In(ctx context.Context, tx Tx, answers bool) (Line, error)
	Close()
}

// Conn is a connection of a pool with at most one transaction, as a client library presents both.
type Conn[Tx any] interface {
	Line() Line
	// Exec runs statements without arguments, in one simple query.
	Exec(ctx context.Context, statements string) error
	// Begin begins a transaction and runs s in it. Mark is what Commit will ask for, and empty in a
	// session without work. After an error the transaction may be open, or not: Rollback ends it.
	Begin(ctx context.Context, mark string, s sqltext.Script) ([][]string, error)
	// Tx is the transaction as work gets it.
	Tx() Tx
	// Commit commits only the transaction that holds mark, with what comes behind that proof. An
	// error that matches dialects.ErrLost means that nothing is committed.
	Commit(ctx context.Context, mark string, behind ...sqltext.Statement) error
	// Rollback ends the library's transaction, if there is one.
	Rollback(ctx context.Context) error
	// Destroy closes the connection, so that the server ends its session, whoever keeps it. It has
	// to be given back all the same.
	Destroy()
	// GiveBack gives the connection back to its pool.
	GiveBack()

	// Carries tells whether a script that begins a transaction may have statements of the caller's.
	Carries() bool
	// Status is the state of the session, as far as it is known without asking the server.
	Status() Status
	// Ask is Status, from the server where it is not known.
	Ask(ctx context.Context) Status
	// Busy tells whether the connection has rows that were not read.
	Busy() bool
}

// Status is the state of a session.
type Status byte

// The states of a session, as the server reports them.
const (
	Closed Status = 0 // the connection is
	Idle   Status = 'I'
	Failed Status = 'E' // the transaction is aborted
	Open   Status = '?' // of which no more is known
)

// With runs work on a connection of a pool, whose server is known to exclude.
type With func(ctx context.Context, work func(Line) error) error
