// Package client is the way to the server: pools and connections as pgx, database/sql and other
// drivers present them, and how a script travels on a connection. It knows nothing of locks.
package client

import (
	"context"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// Pool is where a client library keeps its connections.
type Pool[Tx any] interface {
	Ready() error
	Size() int // 0: without a limit
	// Acquire takes a connection that is alive and outside a transaction.
	Acquire(ctx context.Context) (Conn[Tx], Querier, error)
	// In runs scripts in a transaction of the caller's, to lock the rows of request.
	In(ctx context.Context, tx Tx, request dialects.Request) (Querier, error)
	// Alone asks the server when the pool has no connection to give. It makes one, as the pool
	// would make another like known.
	Alone(ctx context.Context, known *pgx.Conn, ask sqltext.Statement) ([]string, error)
	Close()
}

// Conn is a connection of a pool with at most one transaction, as a client library presents both.
type Conn[Tx any] interface {
	link
	// Lasting is nil on a connection of a caller's pool, whose settings are not the library's.
	Lasting() *Lasting
	// Begin begins a transaction and runs s in it. Mark is what Commit will ask for, and empty in a
	// session without work. After an error the transaction may be open, or not: Rollback ends it.
	Begin(ctx context.Context, mark string, s sqltext.Script) ([][]string, error)
	// CarriesWork tells whether a script may have statements of the caller's, and an error then
	// shows which has failed. Counted says that all of them are sqltext.Work.Counted: then the
	// error may also be a syntax error in front of all.
	CarriesWork(counted bool) bool
	// Tx is the transaction as work gets it.
	Tx() Tx
	// Savepoint sets a savepoint, and presents what follows as a transaction. Release releases it.
	// With outer it is set, inside another one of that name, which release releases with it.
	Savepoint(ctx context.Context, name, outer string) (nested Tx, release func(context.Context) error, err error)
	// Commit commits only the transaction that holds mark. Settled is the session's. An error that
	// matches dialects.ErrLost means that nothing is committed.
	Commit(ctx context.Context, mark string, settled bool) error
	// Rollback ends the library's transaction, if there is one.
	Rollback(ctx context.Context) error
	// Destroy closes the connection. It has to be given back all the same.
	Destroy()
	// GiveBack gives the connection back to its pool.
	GiveBack()
}

// link is how the own statements of the library travel on a connection. Nobody else uses it then.
type link interface {
	// Run sends a script and returns the first column of each statement's rows. After an error no
	// statement behind the failed one has run.
	Run(ctx context.Context, s sqltext.Script) ([][]string, error)
	// Exec runs statements without arguments, in one simple query.
	Exec(ctx context.Context, statements string) error
	// commitAlone commits whatever transaction is open, as work may do itself. It is an error when
	// the server rolls that back instead.
	commitAlone(ctx context.Context) error
	// Status is the state of the session, as far as it is known without asking the server.
	Status() Status
	// Shown is the state of the session as the server's last answer has shown it; Open: the client
	// library does not tell. Nobody else uses the connection then.
	Shown() Status
	// Ask is Status, from the server where it is not known.
	Ask(ctx context.Context) Status
	// Busy tells whether the connection has rows that were not read.
	Busy() bool
	// Told is the number of the server's process, as it was told at the login; empty: it was not. A
	// pooler in between tells another.
	Told() string
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

// Querier runs scripts on one connection, whichever client library it belongs to.
type Querier struct {
	// Run sends a script and returns the first column of each statement's rows. After an error no
	// statement behind the failed one has run.
	Run func(ctx context.Context, s sqltext.Script) ([][]string, error)
	// Flight is the same for a script that begins with a savepoint, in as few round trips as the
	// client library can. It calls safe when a cancel can hit nothing in front of the savepoint any
	// more.
	Flight func(ctx context.Context, s sqltext.Script, safe func()) ([][]string, error)
	Blind  bool // Flight returns no columns
	// Interrupt ends the statement that is running, from outside the connection.
	Interrupt func(ctx context.Context) error
	// Cut closes the connection under a statement that interrupts do not end; nil: the end of the
	// statement's context does.
	Cut    func()
	Socket net.Conn
	Conn   *pgx.Conn // whose settings are to be read, and nothing else; nil: not known
}

// Abandon rolls back what a script has left open. Where that fails, the connection is closed when
// it goes back.
func (q Querier) Abandon(ctx context.Context) {
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	_, _ = q.Run(clean, sqltext.Script{sqltext.Silent("rollback")})
}

// With runs work on a connection of a pool, whose server is known to exclude.
type With func(ctx context.Context, work func(Querier) error) error
