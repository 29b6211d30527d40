package txlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// frame is a part of a session in which calls take turns, for a connection serves one goroutine at
// a time: the session as a whole, and in it each nested Do. A context carries the frame that it was
// made for.
type frame[Tx any] struct {
	*session[Tx]
	parent *frame[Tx] // nil for the session as a whole
	// turn is held by whoever sends statements of ours in the frame: by a nested Do until its work
	// has returned, for savepoints are a stack, and two of them side by side would undo each other.
	// The work of the Do that began the session does not hold it. Never taken while mu is held.
	turn   chan struct{}
	closed chan struct{} // closed with the turn held, which is not given back: calls go to the parent then
	nested atomic.Int64  // counts the beginnings and ends of nested Dos: odd while one holds the turn
	undone bool          // what was locked in the frame was released by a savepoint; guarded by mu
}

func newFrame[Tx any](s *session[Tx], parent *frame[Tx]) *frame[Tx] {
	return &frame[Tx]{session: s, parent: parent, turn: make(chan struct{}, 1), closed: make(chan struct{})}
}

// take waits for the turn of the frame, or of the nearest one around it that is open, and returns
// that. It gives up when ctx ends, and when a nested Do keeps the turn for a whole lease: the call
// is perhaps its own, made with the wrong context.
func (f *frame[Tx]) take(ctx context.Context) (*frame[Tx], error) {
	patience := f.locker.config.lease
	timer := time.NewTimer(patience)
	defer timer.Stop()
	nested := f.nested.Load()
	for {
		select {
		case f.turn <- struct{}{}:
			return f, nil
		case <-f.closed:
			if f = f.parent; f == nil {
				return nil, lost(ErrNotHeld)
			}
			timer.Reset(patience)
			nested = f.nested.Load()
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: another call uses the session: %w", ErrNotAcquired, ctx.Err())
		case <-timer.C:
			now := f.nested.Load()
			if now == nested && now%2 == 1 { // all the time the same one
				return nil, fmt.Errorf("%w: a Do has been running in this session for %v; a call inside its work "+
					"must use the context that the work got", ErrNotAcquired, patience)
			}
			timer.Reset(patience)
			nested = now
		}
	}
}

func (f *frame[Tx]) yield() { <-f.turn }

// close ends the frame, when the calls that are under way in it have returned. One that does not is
// ended, and the session with it: its context has ended, but it may have gone on without its
// cancellation.
func (f *frame[Tx]) close() {
	patience := time.NewTimer(releaseTimeout)
	defer patience.Stop()
	select {
	case f.turn <- struct{}{}:
	case <-patience.C:
		f.mu.Lock()
		f.gone(errUnderWay)
		f.mu.Unlock()
		f.cut()
		f.turn <- struct{}{}
	}
	close(f.closed)
}

// errUnderWay is why a session is ended with its connection.
var errUnderWay = errors.New("a call that is under way in the session did not end")

// within tells whether the frame is other, or inside it.
func (f *frame[Tx]) within(other *frame[Tx]) bool {
	for ; f != nil; f = f.parent {
		if f == other {
			return true
		}
	}
	return false
}

// undo ends what was locked in the frame and in those inside it, for its savepoint was rolled back:
// it gives the handles back that are left. The contexts of the work there have ended before. It is
// called with mu held, and with a handle of the nested Do's own, so that the session goes on.
func (f *frame[Tx]) undo() {
	f.undone = true
	for cancel, taken := range f.cancels {
		if taken.within(f) {
			delete(f.cancels, cancel)
			f.handles--
			(*cancel)(errUndone)
		}
	}
}

// released tells whether what was locked in the frame was released by a savepoint.
func (f *frame[Tx]) released() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ; f != nil; f = f.parent {
		if f.undone {
			return true
		}
	}
	return false
}

// errUndone is why the context of a Lock ends that was taken in the work of a nested Do that
// failed.
var errUndone = fmt.Errorf("%w: the nested Do in which the lock was taken has failed", ErrNotHeld)
