// Package lifecycle has the parts of a lock's session that need no database:
//
//   - [Life]: how far the session has come. Its callers hold it by a [Handle] each.
//   - [Turns]: which call may send next on its one connection. A call is made in a [Scope], and
//     gets a [Turn].
//   - [Heartbeat]: what keeps the session alive and notices its loss.
//
// Each of the three has a mutex of its own, and none calls another with that mutex held. Package
// txlock puts them together.
package lifecycle

import (
	"context"
	"sync"
)

// Life is how far a session has come: it is open, ending or ended. It can be lost, once and for one
// reason, while it is open.
//
// The callers that hold the session have a Handle each. Handles are the depth of reentry.
type Life struct {
	mu      sync.Mutex
	phase   phase
	lost    error                // why it is lost; nil: it is not
	handles map[*Handle]struct{} // those that were not given back
	ended   chan struct{}
}

type phase int

const (
	open   phase = iota // callers may enter
	ending              // one caller gives the connection back, nobody enters any more
	ended               // the connection was given back
)

// NewLife returns the life of an open session, and the handle of the caller that began it, in the
// scope of the session as a whole.
func NewLife(whole *Scope) (*Life, *Handle) {
	l := &Life{handles: make(map[*Handle]struct{}, 1), ended: make(chan struct{})}
	return l, l.Enter(whole)
}

// Enter returns a handle for a caller in scope, or nil when the session is not open any more. In a
// scope that was undone the handle holds nothing, as Err says.
func (l *Life) Enter(scope *Scope) *Handle {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != open {
		return nil
	}
	h := &Handle{life: l, scope: scope}
	for s := scope; s != nil; s = s.outer {
		if s.undone != nil {
			h.revoked = s.undone
			return h
		}
	}
	l.handles[h] = struct{}{}
	return h
}

// Open tells whether callers may enter.
func (l *Life) Open() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase == open
}

// Lost is the reason for which the session was lost, or nil.
func (l *Life) Lost() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Lose declares an open session lost: the contexts of all handles end with cause reason. It returns
// false, and changes nothing, when the session was lost before or is not open any more.
func (l *Life) Lose(reason error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != open || l.lost != nil {
		return false
	}
	l.lost = reason
	for h := range l.handles {
		h.end(reason)
	}
	return true
}

// BeginEnd begins the end of an open session and returns true. The handles that are left are given
// back: they end with cause reason, or with the loss if there was one. It returns false when
// somebody else ends the session.
func (l *Life) BeginEnd(reason error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != open {
		return false
	}
	l.phase = ending
	for h := range l.handles {
		h.revoke(reason)
	}
	return true
}

// Undo gives back the handles in scope, and in the scopes inside it, with cause reason: a savepoint
// is rolled back, and what was locked behind it may be free. The session goes on. It may be called
// twice.
func (l *Life) Undo(scope *Scope, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	scope.undone = reason
	for h := range l.handles {
		if h.scope.within(scope) {
			h.revoke(reason)
		}
	}
}

// MarkEnded says that the connection was given back. Whoever got true from BeginEnd, or was the
// last to leave, calls it once.
func (l *Life) MarkEnded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = ended
	close(l.ended)
}

// Ended is closed when the connection was given back.
func (l *Life) Ended() <-chan struct{} { return l.ended }

// Handle is one caller's hold of a session.
type Handle struct {
	life  *Life
	scope *Scope

	// Guarded by the mutex of life.
	cancel  context.CancelCauseFunc // of Context; nil before
	revoked error                   // why it was given back by somebody else
}

// Scope is where in the session the caller has entered.
func (h *Handle) Scope() *Scope { return h.scope }

// Err is the reason for which the handle holds nothing any more, or nil while it does.
func (h *Handle) Err() error {
	h.life.mu.Lock()
	defer h.life.mu.Unlock()
	return h.err()
}

// err is called with the mutex held.
func (h *Handle) err() error {
	if h.revoked != nil {
		return h.revoked
	}
	return h.life.lost
}

// Context derives a context that ends with the handle. It is called once.
func (h *Handle) Context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	h.life.mu.Lock()
	defer h.life.mu.Unlock()
	h.cancel = cancel
	if err := h.err(); err != nil {
		cancel(err)
	}
	return ctx
}

// Leave gives the handle back and ends its context. With last, it was the last one of an open
// session, which is ending now: the caller has to give the connection back, and call MarkEnded. err
// is the reason for which the handle held nothing any more. A second call does nothing.
func (h *Handle) Leave() (last bool, err error) {
	h.life.mu.Lock()
	defer h.life.mu.Unlock()
	if _, held := h.life.handles[h]; held {
		delete(h.life.handles, h)
		if last = len(h.life.handles) == 0; last {
			h.life.phase = ending
		}
	}
	err = h.err()
	h.end(context.Canceled)
	return last, err
}

// revoke gives the handle back in the name of its caller, with the mutex held. A loss is the better
// reason.
func (h *Handle) revoke(reason error) {
	if h.life.lost != nil {
		reason = h.life.lost
	}
	delete(h.life.handles, h)
	h.revoked = reason
	h.end(reason)
}

// end ends the context of the handle, with the mutex held.
func (h *Handle) end(cause error) {
	if h.cancel != nil {
		h.cancel(cause)
	}
}
