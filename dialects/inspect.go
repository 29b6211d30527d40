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
