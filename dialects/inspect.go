package dialects

import (
	"context"
	"errors"
	"time"
)

// ErrChanged occurs when the session to be ended has ended by itself, or is in another transaction
// now.
var ErrChanged = errors.New("the session has changed")

// Inspector shows who holds rows and who waits for them. Its methods take a connection from the
// pool for a moment.
type Inspector interface {
	// Inspect returns what is held or awaited of a kind. More slots may be returned than were asked
	// for, and the caller filters. A table of semaphores or of elections that is missing, or that
	// this user may not read, has none.
	Inspect(ctx context.Context, of Inspection) ([]RowState, error)

	// End ends a session that Inspect has shown, and returns when the server has released what it
	// held. A session that is in another transaction by now goes on: ErrChanged.
	End(ctx context.Context, party Party) error
}

// Kind is what can be held.
type Kind int

const (
	// KindRow is a row of the lock table, or of a caller's table that sessions of txlock say they
	// lock.
	KindRow Kind = iota
	// KindSemaphore is the permits of a semaphore.
	KindSemaphore
	// KindElection is the seat of an election: its holder leads.
	KindElection
)

// Inspection says what to look at.
type Inspection struct {
	Kind  Kind
	Table LockTable
	Slots []int    // of KindRow: that are looked for alone; nil: all
	Names []string // of the other kinds, by their hashes: that are looked for alone; nil: all
}

// RowState is a row with its holder and waiters.
type RowState struct {
	Table   string  // of KindRow, as its user spells it
	Column  string  // empty for a slot
	Value   string  // of Column, or the slot's number
	Holder  *Party  // nil: nobody known; without a Session: the row is held, and the server does not say by whom
	Readers []Party // who shares it
	// Sharing is how many more share it, of whom the server does not say who they are.
	Sharing int
	Waiters []Party // in the order of the queue
	// Named is the semaphore, or the election whose seat the row is. Of a row of KindRow it is
	// zero.
	Named Named
	// Permits are the sessions that hold a permit each of a semaphore, which is no row: Value is
	// empty.
	Permits []Party
}

// Party is a session that holds a row or waits for it. What the server does not show is empty.
type Party struct {
	Session     string // the server's number for it
	Permit      int    // of a semaphore, that it holds
	Transaction string // tells it from other transactions of the same session
	Application string
	Host        string // of the client, with its port where the server shows it
	Process     int    // of the client
	User        string
	Database    string
	Shown       []Shown
	Shared      bool // it shares the row, or waits to share it
	// Since is when a waiter began to wait, or when a holder was granted the row, by the server's
	// clock. Where the grant is not known it is the begin of the transaction.
	Since     time.Time
	For       time.Duration // the time since then, by the server's clock
	Idle      bool          // it runs no statement
	Statement string        // that runs, or ran last
}

// Shown is what a session says that it locks: a bracket of its label.
type Shown struct {
	Table, Column string   // empty for slots
	Items         []string // keys of slots, or values of Column
	Cut           bool     // the last item is the beginning of one, and more may be missing
	Granted       bool     // After the begin of the transaction, or At a time
	After         time.Duration
	At            time.Time
	Permits       int // of a semaphore, whose key is the only item; 0: Items are no semaphore
	Behind        int // callers of its process that wait for the same, without a session, when it last said so
}
