package dialects

import "context"

// Keeper keeps the rows beside the lock table. Its methods take a connection from the pool for a
// moment. A table that is missing is ErrNotInstalled.
type Keeper interface {
	// Rows finds the first n rows of a semaphore. With create it makes
	// those that are missing, and may run on several clients at once. Without, the result is zero
	// then.
	Rows(ctx context.Context, table string, of Named, n int, create bool) (Rows, error)

	// Claims reads claims in one round trip, and locks nothing. Those without a row are missing.
	// Without hashes it reads those that are held, of more than MostClaims those that end first.
	// The error may be ErrUnreadable.
	Claims(ctx context.Context, table string, hashes ...[32]byte) (map[[32]byte]ClaimState, error)
}
