package dialects

import (
	"context"
	"errors"
	"time"
)

// ErrChanged occurs when the session to be ended has ended by itself, or is in another transaction
// now.
var ErrChanged = errors.New("the session has changed")

// Inspector is what a Driver may be, too: it shows who holds rows and who waits for them. Its
// methods take a connection from the pool for a moment.
type Inspector interface {
	// Inspect returns what is held or awaited. More slots may be returned than were asked for, and
	// the caller filters. A table of semaphores or of elections that is missing, or that this user
	// may not read, has none.
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
	// KindSemaphore is a permit of a semaphore, or its queue.
	KindSemaphore
	// KindElection is the seat of an election: its holder leads.
	KindElection
)

// Named is a semaphore or an election. Clients agree on the hash of its name. It has rows of its
// own in a table beside the lock table.
//
// A semaphore has one for each permit, and one that is its queue: no server can wait for any of
// several rows. An election has a seat, a record and an office: see txlock.Election.
type Named struct {
	Kind Kind
	Hash string // of 64 hexadecimal digits
	Name string // in ASCII, for people; empty: it is hidden
}

// Inspection says what to look at: everything, or what was named.
type Inspection struct {
	Table LockTable
	Slots []string // that are looked for alone; nil: all, and rows of callers' tables
	Names []string // of semaphores and elections, by their hashes, that are looked for alone; nil: all
	Brief bool     // what the server shows at once is enough
}

// RowState is a row with its holder and waiters.
type RowState struct {
	Named         // the semaphore or the election whose row it is
	Permit int    // of a semaphore; behind the last one its queue, where the holder is the first that waits
	Table  string // of a caller's row, as its user spells it, as is Column
	Column string // empty for a row of our own
	Value  string // of Column, or the number of our own row

	Holder  *Party  // nil: nobody known; without a Session: the row is held, and the server does not say by whom
	Readers []Party // who shares it
	Waiters []Party // in the order of the queue
}

// Party is a session that holds a row or waits for it. What the server does not show is empty.
type Party struct {
	Session     string // the server's number for it
	Transaction string // tells it from other transactions of the same session
	Prepared    string // the name of a prepared transaction, which belongs to no session
	Key         string // of a slot: what the session named, when it says so
	Application string
	Host        string // of the client, with its port where the server shows it
	Process     int    // of the client
	User        string
	Database    string
	Shared      bool // it shares the row, or waits to share it
	// Since is when a waiter began to wait, or the transaction of a holder began or was prepared.
	Since     time.Time
	For       time.Duration // the time since then, by the server's clock
	Idle      bool          // it runs no statement
	Statement string        // that runs, or ran last
}
