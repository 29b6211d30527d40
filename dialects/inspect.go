package dialects

import (
	"context"
	"errors"
	"time"
)

// ErrChanged occurs when the session that should be ended has ended by itself, or is in another
// transaction now.
var ErrChanged = errors.New("the session has changed")

// Inspector shows who holds rows and who waits for them. It takes a connection of the pool for a
// moment.
type Inspector interface {
	// Inspect returns the rows of table, the lock table, that are held or awaited, and those of
	// callers' tables that sessions of txlock say they lock. Slots is how many table was seeded
	// with. Where the server does not tell of a held row unless it is asked about that row, only is
	// which slots to ask about; all when it is nil.
	Inspect(ctx context.Context, table string, slots int, only []int) ([]RowState, error)

	// End ends a session that Inspect has shown, unless it is in another transaction by now:
	// ErrChanged. It returns when the server has released what the session held.
	End(ctx context.Context, party Party) error
}

// RowState is a row, and who has to do with it.
type RowState struct {
	Table   string  // as its user spells it
	Column  string  // of a row of the caller's; empty for a slot
	Value   string  // of Column, or the slot's number
	Holder  *Party  // nil: of nobody who is shown; without a Session: it is held, and the server does not say by whom
	Waiters []Party // in the order of the queue
}

// Party is a session that holds a row or waits for it, as the server shows it. What it does not
// show is empty.
type Party struct {
	Session     string // the server's number for it
	Transaction string // what tells it from another transaction of the same session
	Application string
	Host        string // of the client, and port where the server shows it
	Process     int    // of the client
	User        string
	Database    string
	Claims      []Claim
	// by the server's clock: granted, or where that is not known the begin of the transaction; of a
	// waiter, when its wait began
	Since     time.Time
	For       time.Duration // since then, by the server's clock
	Idle      bool          // it runs no statement
	Statement string        // that it runs, or ran last
}
