package dialects

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// ErrDone occurs when a marker says that the work was done. Nothing is written then.
var ErrDone = errors.New("done before")

// Marker names work that is not to be done twice. Its row stands in a table beside the lock table,
// and has the time at which the work was done, by the server's clock.
type Marker struct {
	Hash [32]byte
	// Period is the length of the windows, counted from the Unix epoch, in each of which the work
	// may be done once. It is 0 for ever, otherwise whole microseconds.
	Period time.Duration
	Verb   MarkerVerb
	// At is what WriteMarker writes: when LookForMarker has looked, which sets it. Zero is the
	// present.
	At time.Time
}

// MarkerVerb is what is done with a marker.
type MarkerVerb byte

const (
	// LookForMarker is ErrDone if the marker is there.
	LookForMarker MarkerVerb = iota
	// WriteMarker is ErrDone if the marker is there. The statement then fails.
	WriteMarker
	// ForgetMarker deletes it, if it is there; of Session.Record alone.
	ForgetMarker
)

// Read sets At by the answer to a look: the present, and behind a blank when the work was done, in
// microseconds. Then it is ErrDone, and returns that time.
func (m *Marker) Read(answer string) (done time.Time, err error) {
	now, before, found := strings.Cut(answer, " ")
	micros, err := strconv.ParseInt(now, 10, 64)
	if m.At = time.UnixMicro(micros); err != nil || !found {
		return done, err
	}
	if micros, err = strconv.ParseInt(before, 10, 64); err == nil {
		err = ErrDone
	}
	return time.UnixMicro(micros), err
}
