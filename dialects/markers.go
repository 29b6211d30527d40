package dialects

import (
	"context"
	"errors"
	"time"
)

// ErrDone occurs when a marker says that the work was done. Nothing is locked or written then.
var ErrDone = errors.New("done before")

// Marker names work that is not to be done twice. Its row stands in a table beside the lock table,
// and has the time at which the work was done, by the server's clock.
type Marker struct {
	Table string // the lock table
	Hash  [32]byte
	// Period is the length of the windows, counted from the Unix epoch, in each of which the work
	// may be done once. It is 0 for ever, otherwise whole microseconds.
	Period time.Duration
}

// Recorder keeps markers. Its methods take a connection from the pool for a moment. A table that is
// missing is ErrNotInstalled.
type Recorder interface {
	// Done reads when the work of a marker was done, in one round trip. It locks nothing. The time
	// is zero when the work was not done, or not in the present window.
	Done(ctx context.Context, marker Marker) (at time.Time, err error)

	// Sweep deletes the markers that are older than age, in transactions of few markers each, and
	// returns how many it has deleted, also after an error. It waits for nobody: markers that
	// others use stay.
	Sweep(ctx context.Context, table string, age time.Duration) (deleted int64, err error)
}

// Marking is what a session with work does to a marker, in its transaction. The row of the marker's
// key is locked. After an error the transaction may be of no use.
type Marking interface {
	// Mark writes the marker, or returns ErrDone when the work was done in the present window.
	Mark(ctx context.Context, marker Marker) error

	// Unmark deletes the marker, if it is there.
	Unmark(ctx context.Context, marker Marker) error
}
