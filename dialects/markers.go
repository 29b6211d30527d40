package dialects

import (
	"errors"
	"time"
)

// ErrDone occurs when a marker says that the work was done. Nothing is locked or written then.
var ErrDone = errors.New("done before")

// Marker names work that is not to be done twice. Its row stands in a table beside the lock table,
// and has the time at which the work was done, by the server's clock.
type Marker struct {
	Hash [32]byte
	// Period is the length of the windows, counted from the Unix epoch, in each of which the work
	// may be done once. It is 0 for ever, otherwise whole microseconds.
	Period time.Duration
	Forget bool // it is deleted, if it is there; of Session.Record alone
}
