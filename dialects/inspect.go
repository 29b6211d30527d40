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
	// Inspect returns the rows of the lock table that are held or awaited, and those rows of
	// callers' tables that sessions of txlock say they lock. Slots is how many table was seeded
	// with. Only limits the slots that are looked for; nil means all. More may be returned, and the
	// caller filters.
	Inspect(ctx context.Context, table string, slots int, only []int) ([]RowState, error)

	// End ends a session that Inspect has shown, and returns when the server has released what it
	// held. A session that is in another transaction by now goes on: ErrChanged.
	End(ctx context.Context, party Party) error
}

// RowState is a row with its holder and waiters.
type RowState struct {
	Table   string  // as its user spells it
	Column  string  // empty for a slot
	Value   string  // of Column, or the slot's number
	Holder  *Party  // nil: nobody known; without a Session: the row is held, and the server does not say by whom
	Readers []Party // who shares it
	// Sharing is how many more share it, of whom the server does not say who they are.
	Sharing int
	Waiters []Party // in the order of the queue
	// Semaphore is a hash of the name of a semaphore, and empty for a row. Table is the lock table
	// then, and Permits are the sessions that hold a permit each.
	Semaphore string
	Permits   []Party
	// Election is a hash of the name of an election, whose seat the row is.
	Election string
	// Name is what the table has of the name of the semaphore or the election, for people.
	Name string
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
	Claims      []Claim
	Shared      bool // it shares the row, or waits to share it
	// Since is when a waiter began to wait, or when a holder was granted the row, by the server's
	// clock. Where the grant is not known it is the begin of the transaction.
	Since     time.Time
	For       time.Duration // the time since then, by the server's clock
	Idle      bool          // it runs no statement
	Statement string        // that runs, or ran last
}

// Claim is what a session says that it locks.
type Claim struct {
	Table, Column string   // empty for slots
	Items         []string // keys of slots, or values of Column
	Cut           bool     // the last item is the beginning of one, and more may be missing
	Granted       bool     // After the begin of the transaction, or At a time
	After         time.Duration
	At            time.Time
	Permits       int // of a semaphore, whose key is the only item; 0: Items are no semaphore
	Behind        int // callers of its process that wait for the same, without a session, when it last said so
}
