package dialects

import "context"

// Keeper keeps the rows beside the lock table. Its methods take a connection from the pool for a
// moment. A table that is missing is ErrNotInstalled.
type Keeper interface {
	// Rows finds the first n rows of a semaphore, or those of an election. With create it makes
	// those that are missing, and may run on several clients at once. Without, the result is zero
	// then.
	Rows(ctx context.Context, table string, of Named, n int, create bool) (Rows, error)

	// Appoint writes who leads to the record, in a transaction of its own. The caller has the seat,
	// and has drawn the term with it. One that has lost it, and does not know yet, changes nothing
	// once a later term is written, and gets ErrLost. A record that is missing is ErrNoRow.
	Appoint(ctx context.Context, election Rows, identity string, term int64) error

	// Leader reads the record, in one round trip, and whether the office is locked: otherwise it is
	// ErrNoLeader. A record that is missing is ErrNoRow.
	Leader(ctx context.Context, election Rows) (Leader, error)
}
