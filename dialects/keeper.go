package dialects

import "context"

// Keeper keeps the rows beside the lock table. Its methods take a connection from the pool for a
// moment. A table that is missing is ErrNotInstalled.
type Keeper interface {
	// Claims reads claims in one round trip, and locks nothing. Those without a row are missing.
	// Without hashes it reads those that are held, of more than MostClaims those that end first.
	// The error may be ErrUnreadable.
	Claims(ctx context.Context, table string, hashes ...[32]byte) (map[[32]byte]ClaimState, error)
}
