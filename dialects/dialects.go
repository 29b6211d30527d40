// Package dialects is the seam between the locks of package txlock and the databases that hold
// them.
//
// A [Driver] is one database reached through one client library; a [Session] is one of its
// connections with the transaction that holds the locks. The folders below are the drivers. They
// know this package and not each other; package txlock knows this package and none of them.
package dialects

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// The errors that a driver tells apart. Package txlock exports those that its callers see under the
// same names and documents them there.
var (
	ErrNotAcquired  = errors.New("lock not acquired")
	ErrLost         = errors.New("lock lost")
	ErrDeadlock     = errors.New("deadlock")
	ErrNotInstalled = errors.New("lock table not installed")
	ErrNoRow        = errors.New("no such row")
	ErrIsolation    = errors.New("unsuitable isolation level")
	ErrUnsafeEngine = errors.New("engine does not lock rows")
)

// Driver opens sessions that hold row locks. Its methods may be called from many goroutines.
//
// Every method returns when ctx ends, and leaves no connection in the pool that holds a lock, an
// open transaction or a changed setting.
type Driver[Tx any] interface {
	// System is the database's name among OpenTelemetry's semantic conventions, "postgresql" or
	// "mysql".
	System() string

	// Begin takes a connection of the pool, begins a transaction on it and locks the rows of
	// request there. After an error the connection is back in the pool, clean, or closed. A
	// connection that died while it was idle in the pool is replaced. token is what Request.Fence
	// asks for, else 0.
	Begin(ctx context.Context, request Request) (session Session[Tx], token int64, err error)

	// LockTx locks the rows of request in a transaction that the caller began and will end. After
	// an error the transaction is usable and its settings are what they were, unless the error
	// matches ErrLost or, on MySQL and MariaDB, ErrDeadlock.
	LockTx(ctx context.Context, tx Tx, request Request) error

	// Slots reads the number of slots of table. An incomplete table, or one of another shape, is
	// ErrNotInstalled.
	Slots(ctx context.Context, table string) (int, error)

	// Install creates what layout names, unless it exists. It returns the number of slots the table
	// has.
	Install(ctx context.Context, layout Layout) (int, error)

	// Schema is the SQL text of Install, statements separated by semicolons.
	Schema(layout Layout) (string, error)

	// MinLease is the shortest lease that the server can keep.
	MinLease() time.Duration

	// Check proves on two sessions that the server refuses a row of table that another session
	// holds. Anything else is ErrUnsafeEngine.
	Check(ctx context.Context, table string) error

	Inspector

	// Close ends what the driver itself opened.
	Close() error
}

// Session is one connection with the transaction that holds its locks. It serves one goroutine at a
// time.
//
// Join, Nest and Commit fail with ErrLost when the transaction that took the locks is not there any
// more.
type Session[Tx any] interface {
	// Tx is the transaction, as the caller's own client library presents it.
	Tx() Tx

	// Socket is the connection to the server, to be watched and not used; nil when it cannot be
	// seen.
	Socket() net.Conn

	// Ping asks the server for an answer, by which the lease begins anew. It is not called while
	// work runs.
	Ping(ctx context.Context) error

	// Join locks more rows in the transaction. After an error the locks held before are still held,
	// unless it matches ErrLost. token is as Begin's.
	Join(ctx context.Context, request Request) (token int64, err error)

	// Nest runs work in a savepoint. When work fails or panics, what it did is undone and the locks
	// stay; its error is returned, or that of the undoing.
	Nest(ctx context.Context, work func(tx Tx) error) error

	// Commit commits the work if and only if the transaction is the one that took the locks, and
	// ends the session in any case.
	Commit(ctx context.Context) error

	// Rollback ends the transaction without its work, releases the locks and ends the session in
	// any case: a connection that does not confirm is closed, and the server then releases. Its
	// error says that the session was broken before.
	Rollback(ctx context.Context) error
}

// DefaultSlots is how many slots Install seeds unless told otherwise: of 100 keys held at once some
// two share one of 65536 slots with a probability of 7 %, and a shared slot only costs waiting.
const DefaultSlots = 65536

// MaxSlots is the largest number of slots that Install accepts.
const MaxSlots = 1 << 20

// Layout is what Install creates.
type Layout struct {
	Table   string // as its user spells it
	Slots   int    // 0: as many as an earlier Install asked for, or DefaultSlots
	Fencing bool   // also what tokens are made of
}

// Request names rows to lock.
type Request struct {
	Table  string   // as its user spells it: name, schema.name, parts quoted as the database quotes them
	Column string   // of the rows, unique and indexed
	Values []Value  // of the column, each once, in the order in which the rows are locked
	Slots  int      // rows are slots of a table seeded with this many, and must say so; 0 for a table of the caller's
	Keys   []string // of the slots, as the caller names them: for others to see, by Label
	Try    bool     // do not wait: a row that another session holds, or waits for, is ErrNotAcquired
	// statements of the caller will run in the session, whose Commit must then be proof against
	// losing it
	Work bool

	// Lease is the longest silence between two statements after which the server itself ends the
	// session. Begin reads it.
	Lease time.Duration
	// Fence is the lock table, as its user spells it, whose fence gives a token once the rows are
	// locked; empty: none.
	Fence string
}

// Value is one value of a column, in a form that compares with a column of any type.
type Value struct {
	Text   string
	Binary bool // Text holds the bytes of a binary column
}

// Missed is the error of a request that locked fewer rows than it named, given the values that do
// exist.
func (r Request) Missed(existing []string) error {
	exists := make(map[string]bool, len(existing))
	for _, text := range existing {
		exists[text] = true
	}
	if len(exists) >= len(r.Values) {
		if r.Try {
			return fmt.Errorf("%w: another session holds it", ErrNotAcquired)
		}
		return fmt.Errorf("%w: a row of %.100s changed or came while it was being locked", ErrNoRow, r.Table)
	}
	for _, value := range r.Values {
		switch {
		case exists[value.Text]:
		case r.Slots > 0:
			return fmt.Errorf("%w: table %.100s has no slot %s of %d: it changed since it was read", ErrNotInstalled,
				r.Table, value.Text, r.Slots)
		default:
			return fmt.Errorf("%w: table %.100s has no row where %.100s is %.100q, or it is a row named twice",
				ErrNoRow, r.Table, r.Column, value.Text)
		}
	}
	return fmt.Errorf("%w: table %.100s", ErrNoRow, r.Table)
}
