// Package dialects is the seam between the locks of package txlock and the databases that hold
// them. A [Driver] is one database reached through one client library. A [Session] is one of its
// connections with the transaction that holds the locks. The folders below are drivers: they know
// this package and not each other. Package txlock knows this package and none of them.
package dialects

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"time"
)

// The errors that a driver tells apart. Package txlock exports those that its callers see.
var (
	ErrNotAcquired  = errors.New("lock not acquired")
	ErrLost         = errors.New("lock lost")
	ErrDeadlock     = errors.New("deadlock")
	ErrNotInstalled = errors.New("lock table not installed")
	ErrNoRow        = errors.New("no such row")
	ErrIsolation    = errors.New("unsuitable isolation level")
	ErrUnsafeEngine = errors.New("engine does not lock rows")
	ErrNoLeader     = errors.New("no leader")
	ErrRows         = errors.New("unexpected number of rows")
	ErrNotPermitted = errors.New("not permitted") // the user lacks a privilege for a statement of a kind
)

// ErrUnknown matches ErrLost: the connection broke while COMMIT may have been under way.
var ErrUnknown = fmt.Errorf("%w: whether COMMIT took place is unknown", ErrLost)

// Lost is err as the loss of the transaction that took the locks.
func Lost(err error) error {
	if err == nil || errors.Is(err, ErrLost) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// RefusedError says that rows of the caller's table cannot be locked: the server or the driver has
// refused them. One value may be the reason, so others may be locked. The session lives on.
type RefusedError struct{ Err error }

// Error is the text of Err.
func (e RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e RefusedError) Unwrap() error { return e.Err }

// Driver opens sessions that hold row locks. Its methods may be called from many goroutines. One
// that locks first asks the server, once for the driver, who it is: one that is known not to
// exclude is ErrUnsafeEngine. Every method returns when ctx ends, and leaves no connection in the
// pool that holds a lock, an open transaction or a changed setting.
type Driver[Tx any] interface {
	// Info asks no server.
	Info() Info

	// Begin takes a connection from the pool, begins a transaction on it and locks the rows of
	// request there. A connection that died while it was idle is replaced. After an error the
	// connection is closed, or back in the pool without a transaction. It runs the statements of an
	// Exec, and commits: then there is no session.
	Begin(ctx context.Context, request Request) (Session[Tx], Grant, error)

	// LockTx locks the rows of request in a transaction of the caller's. After an error that is
	// usable and has the settings that it had, unless the error matches ErrLost or, on MySQL and
	// MariaDB, ErrDeadlock.
	LockTx(ctx context.Context, tx Tx, request Request) error

	// Run runs a statement of a kind outside any lock: in a transaction of the caller's, which is
	// usable after an error as LockTx says, or else on a connection of the pool, and commits it. It
	// returns the first column of its rows. A table that is missing is ErrNotInstalled.
	Run(ctx context.Context, q Query, in ...Tx) (lines []string, err error)

	// Classify reads err, also in the words of the caller's client library.
	Classify(err error) Outcome

	// Close ends what the driver itself opened.
	Close() error
}

// Outcome is what an error means for who may try again.
type Outcome int

const (
	// Final is any other error.
	Final Outcome = iota
	// Passing may pass by itself: the server cannot be reached, is starting or stopping, has no
	// connection left, only reads for now, or has interrupted a statement.
	Passing
	// Deadlock is Passing, and the server has chosen the transaction as the victim of a deadlock.
	Deadlock
)

// Info is what a driver knows without a server.
type Info struct {
	System   string        // among OpenTelemetry's semantic conventions: "postgresql" or "mysql"
	PoolSize int           // how many connections the pool may have; 0: as many as are asked for
	MinLease time.Duration // the shortest that the server can keep
	Err      error         // there is no pool, say: then only Close is called

	Layout func(table string) (Layout, error) // of the lock table that table names; also with an Err
}

// Session is one connection with the transaction that holds its locks. It serves one goroutine at a
// time, until End. Work runs only in a session that was begun with Request.Work: Tx is called only
// there, and only there is End to commit. Join and a commit fail with ErrLost when the transaction
// that took the locks has ended.
type Session[Tx any] interface {
	// Tx is the transaction, as the caller's client library presents it.
	Tx() Tx

	// Socket is the connection to the server, to be watched and not used. It is nil when the client
	// library does not show it.
	Socket() net.Conn

	// Ping asks the server for an answer. With the answer the lease begins anew.
	Ping(ctx context.Context) error

	// Join locks more rows in the transaction. After an error the locks taken before are still
	// held, unless it matches ErrLost: where no work runs, Join first has the server answer that
	// the transaction goes on, and with that the lease begins anew.
	//
	// For Request.Work, where the request may have no rows, it sets a savepoint in front of the
	// lock, in one flight where it can, and runs there the statements of an Exec, or else work. Ctx
	// bounds the wait alone. When those fail or panic, their changes are undone. The error is that
	// of the lock, of the work, or of undoing it. After the last, also in a panic, End must commit
	// nothing.
	Join(ctx context.Context, request Request, work func(tx Tx) error) (Grant, error)

	// Run is that of the driver in the work of the session, and in the transaction that took the
	// locks alone. After an error the transaction may be of no use.
	Run(ctx context.Context, q Query) (lines []string, err error)

	// End ends the transaction and the session in any case. With commit it commits the work if, and
	// only if, the transaction is the one that took the locks; last runs between that proof and the
	// COMMIT. Else it undoes the work. A connection on which that is not confirmed by that time is
	// closed, and the server then releases. Of ctx it uses the values alone. An error of a rollback
	// means that the session was lost, or that the release was not confirmed.
	End(ctx context.Context, by time.Time, commit bool, last ...Query) error
}

const (
	// ReleaseTimeout bounds every rollback. A connection that has not confirmed by then is closed.
	ReleaseTimeout = 5 * time.Second
	// CommitTimeout bounds COMMIT, which may rightly take long, on a synchronous standby say.
	CommitTimeout = 30 * time.Second
)

// DefaultSlots is how many slots Install seeds unless told otherwise, MaxSlots how many at most.
const DefaultSlots, MaxSlots = 65536, 1 << 20

// SlotOf is the slot of a key among n. All clients agree on it, in whatever language: another hash
// would let two of them hold one key at once. It never changes.
func SlotOf(key string, n int) int { return int(crc32.ChecksumIEEE([]byte(key)) % uint32(n)) }

// LockTable is what a name was found to mean. Name is the table's with its schema, which means the
// same on every connection, whatever its search_path or its default database is.
type LockTable struct {
	Name  string
	Slots int // that it was seeded with
	Kinds Kinds
}

// Request names rows to lock.
type Request struct {
	Table   string  // as its user spells it: name or schema.name, each plain or quoted
	Column  string  // of the rows, unique and indexed
	Values  []Value // of Column, each once, in the order in which the rows are locked
	Ours    bool    // Table is txlock's own: nobody else locks its rows, whose locks may be renewed
	Slots   int     // that Table was seeded with, which its rows must state; 0: it has none
	Label   string  // what the session shows to others, see package internal/label
	Callers bool    // Table is the caller's, who has named it
	Shared  bool    // other sessions may hold the rows at the same time, if they share them too
	Try     bool    // a row that another session holds, or waits for, is ErrNotAcquired at once

	// AnyOne is the hash that Values' rows have in a table of permits. With Try, one free row is
	// enough: Grant.Row says which. On PostgreSQL the lock of one is advisory and writes nothing.
	AnyOne string

	// Work will run in the session, whose commit must then fail after a loss of the locks.
	Work  *Work
	Lease time.Duration // the server ends a session that is silent for longer
	Fence string        // the lock table whose fence gives a token with the rows; empty: none
}

// TakesFree tells whether there is a Free.
func (w *Work) TakesFree() bool { return w != nil && w.Free != nil }

// Free is the first rows that no other transaction has locked. None is ErrNotAcquired.
type Free struct {
	Where string   // a condition, and behind it ORDER BY, with placeholders as a Statement
	Args  []Value  // if any, Where has no backslash, no comment, and no $ in quotes
	Limit int      // how many rows at most
	Found []string // by the driver: the texts of Column, in order
}

// Work is statements of the caller's: those of an Exec, or what it sends itself.
type Work struct {
	// Look runs behind the lock, also where that was missed: nothing is committed then. It is for
	// Begin alone.
	Look *Query

	// Free, with Try and no Values, has the driver choose the rows.
	Free *Free

	// Statements are those of an Exec, none with AnyOne. Grant.Affected has what they did. The
	// error of one, or of the COMMIT, is a StatementError or matches ErrLost.
	Statements []Statement
	Context    context.Context // bounds the statements; that of Begin bounds the wait for the lock
}

// Looks tells whether there is a Look.
func (w *Work) Looks() bool { return w != nil && w.Look != nil }

// IsExec tells whether it is that of an Exec.
func (w *Work) IsExec() bool { return w != nil && w.Statements != nil }

// Grant is what comes with the rows of a Request.
type Grant struct {
	Token  int64    // what Request.Fence asks for, otherwise 0
	Row    string   // of Request.AnyOne, with Try
	Answer []string // to Work.Look: the first column of its rows

	Affected []int64 // how many rows each statement of an Exec has affected
}

// Statement is a statement of the caller's.
type Statement struct {
	SQL  string // with the placeholders of the database: $1 on PostgreSQL, ? on MySQL and MariaDB
	Args []any  // as the client library takes them
	// Rows is how many rows it must affect, else nothing is committed: that is ErrRows. 0 is any
	// number. A SELECT affects the rows that it returns.
	Rows int
	// Into is where the first row goes, as Scan of the client library takes it. No row is ErrRows.
	// After an error it may have been written to. Args of a statement behind may point there.
	Into []any
}

// Judge is an error unless the statement, which has affected that many rows, may be committed.
func (s Statement) Judge(affected int64) error {
	switch {
	case s.Rows > 0 && affected != int64(s.Rows):
		return fmt.Errorf("%w: it has affected %d, and must affect %d", ErrRows, affected, s.Rows)
	case s.Into != nil && affected == 0:
		return fmt.Errorf("%w: it has returned none, and its first row is asked for", ErrRows)
	}
	return nil
}

// StatementError is the error of one of several statements. Err is the client library's own, or
// matches ErrRows.
type StatementError struct {
	Number int // from 1; 0: that of the COMMIT
	Err    error
}

// Error says which statement has failed, and why.
func (e *StatementError) Error() string {
	if e.Number == 0 {
		return "commit: " + e.Err.Error()
	}
	return fmt.Sprintf("statement %d: %v", e.Number, e.Err)
}

// Unwrap returns Err.
func (e *StatementError) Unwrap() error { return e.Err }

// Value is one value of a column, in a form that compares with a column of any type.
type Value struct {
	Text   string
	Binary bool // Text holds the bytes of a binary column
}

// ErrChanged occurs when the session to be ended has ended by itself, or is in another transaction
// now.
var ErrChanged = errors.New("the session has changed")

// Inspector is what a Driver may be, too: it shows who holds rows and who waits for them. Its
// methods take a connection from the pool for a moment.
type Inspector interface {
	// Inspect returns what is held or awaited, those that wait for a row in the order of the queue.
	// It may return more than was asked for, and a session twice. A table of semaphores or of
	// elections that is missing, or that this user may not read, has none.
	Inspect(ctx context.Context, of Inspection) ([]Entry, error)

	// End ends a session that Inspect has shown, and returns when the server has released what it
	// held. A session that is in another transaction by now goes on: ErrChanged.
	End(ctx context.Context, party Party) error
}

// Kind is what can be held.
type Kind string

// The kinds.
const (
	KindRow       Kind = ""          // a row of the lock table, or of a caller's that sessions say they lock
	KindSemaphore Kind = "semaphore" // a permit of a semaphore, or its queue
	KindElection  Kind = "election"  // the seat of an election: its holder leads
	KindClaim     Kind = "claim"     // of which no Inspector knows: its holder has no session
)

// Inspection says what to look at: everything, or what was named.
type Inspection struct {
	Table LockTable
	Slots []string // that are looked for alone; nil: all, and rows of callers' tables
	Names []string // of semaphores and elections, by their hashes, that are looked for alone; nil: all
	Brief bool     // of Slots alone, what the server shows at once is enough
}

// Entry is a session, and a row that it holds or waits for.
type Entry struct {
	Kind   Kind
	Permit int    // of a semaphore; behind the last one its queue, whose holder is the first that waits
	Hash   string // of the name of a kind, in 64 hexadecimal digits
	Name   string // of that, in ASCII, for people; empty: it is hidden
	Table  string // of a caller's row, as its user spells it, as is Column; empty for a row of our own
	Column string
	Value  string // of Column, or the number of our own row
	Waits  bool
	Party  // empty: the row is held, and the server does not say by whom
}

// Party is a session of the server, as the server shows it. What the server does not show to this
// role is empty.
type Party struct {
	ID          string // the backend's process on PostgreSQL, else the connection; empty: nobody knows
	Transaction string // tells it from others of the same session, or holder of a claim, for Break
	Permit      int    // of a semaphore, that it holds
	Key         string // of a slot, what it named, when it says so
	Application string
	Host        string // of the client, with its port where the server shows one: never on MySQL
	Process     int    // of the client, on its host
	User        string
	Database    string
	Shared      bool      // it shares the row, or waits to share it
	By          string    // who has a claim
	Until       time.Time // its end, by the server's clock; over while its holder is in a Do
	// Prepared is the name of a prepared transaction that has the lock (PREPARE TRANSACTION, on
	// PostgreSQL). It belongs to no session: COMMIT PREPARED or ROLLBACK PREPARED ends it.
	Prepared string
	// Since is when the transaction began, by the server's clock; of a lock that is renewed, the
	// first one; of a prepared one, when that was prepared; of a waiter, when the wait began. For
	// is how long ago that is. Where the server shows neither, Since.IsZero and For is 0.
	Since     time.Time
	For       time.Duration
	Idle      bool   // it runs no statement; false means unknown where Since is not known
	Statement string // that it runs, or ran last
}
