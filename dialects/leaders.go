package dialects

import (
	"context"
	"time"
)

// Electorate keeps who leads. Every election has three rows of its own in a table beside the lock
// table. Candidates lock the seat. Who has it draws a term with it, writes the record, with
// Appoint, and then locks the office: while the office is locked, the record says who leads. The
// office is a row of its own, to which nobody writes: a record is locked also while it is written,
// and still says who led before.
//
// The methods take a connection from the pool for a moment, and table is the lock table.
type Electorate interface {
	// Seats finds the rows of an election. With create it makes them where they are missing, with
	// its name for people, if that is not empty, and may run on several clients at once. Without,
	// the result is zero then. A table that is missing is ErrNotInstalled.
	Seats(ctx context.Context, table string, election Named, create bool) (Seats, error)

	// Appoint writes who leads to the record, in a transaction of its own. The caller has the seat,
	// and has drawn the term with it. One that has lost it, and does not know yet, changes nothing
	// once a later term is written, and gets ErrLost. A record that is missing is ErrNoRow.
	Appoint(ctx context.Context, seats Seats, identity string, term int64) error

	// Leader reads the record, in one round trip, and whether the office is locked: otherwise it is
	// ErrNoLeader. A record that is missing is ErrNoRow.
	Leader(ctx context.Context, seats Seats) (Leader, error)

	// Passing tells whether an error may pass by itself: the server cannot be reached, is starting
	// or stopping, has no connection left, only reads for now, or has interrupted a statement.
	Passing(err error) bool
}

// Seats are the rows of an election.
type Seats struct {
	Election string // a hash of its name, as the table has it
	Table    string // of leaders, as Request has it

	Seat, Record, Office string // numbers of rows
}

// Row requests one of the rows.
func (s Seats) Row(number string) Request {
	return Request{Table: s.Table, Column: "id", Values: []Value{{Text: number}}, Ours: true}
}

// Leader is what a record says.
type Leader struct {
	Identity string
	Term     int64
	Since    time.Time // by the server's clock
}
