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
	lost    error         // why it is lost; nil: it is not
	handles []*Handle     // those that were not given back
	ended   chan struct{} // nil: nobody waits for the end
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
	l := &Life{}
	first := &Handle{life: l, scope: whole}
	l.add(first)
	return l, first
}

// add is called with the mutex held.
func (l *Life) add(h *Handle) {
	h.position = len(l.handles) + 1
	l.handles = append(l.handles, h)
}

// remove is called with the mutex held. It returns false when h was given back before.
func (l *Life) remove(h *Handle) bool {
	if h.position == 0 {
		return false
	}
	last := l.handles[len(l.handles)-1]
	last.position = h.position
	l.handles[h.position-1] = last
	l.handles[len(l.handles)-1] = nil
	l.handles = l.handles[:len(l.handles)-1]
	h.position = 0
	return true
}

// held tells whether the session is open and not lost.
func (l *Life) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase == open && l.lost == nil
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
	for _, h := range l.handles {
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
	for len(l.handles) > 0 {
		l.handles[len(l.handles)-1].revoke(reason)
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
	for i := len(l.handles) - 1; i >= 0; i-- { // the last takes the place of one that is removed
		if h := l.handles[i]; h.scope.Within(scope) {
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
	if l.ended != nil {
		close(l.ended)
	}
}

// Ended is closed when the connection was given back.
func (l *Life) Ended() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.ended = make(chan struct{})
		if l.phase == ended {
			close(l.ended)
		}
	}
	return l.ended
}

// Handle is one caller's hold of a session.
type Handle struct {
	life  *Life
	scope *Scope

	// Guarded by the mutex of life.
	position int                     // in the handles of life, from 1; 0: it was given back
	cancel   context.CancelCauseFunc // of Context; nil before
	cause    error                   // why Context has ended, also if it is asked for later; nil: it has not
	revoked  error                   // why it was given back by somebody else
}

// Scope is where in the session the caller has entered.
func (h *Handle) Scope() *Scope { return h.scope }

// Open tells whether a caller with the context of h may enter the session.
func (h *Handle) Open() bool {
	h.life.mu.Lock()
	defer h.life.mu.Unlock()
	return h.open()
}

// open is called with the mutex held.
func (h *Handle) open() bool { return h.life.phase == open }

// Enter returns a handle for a caller that has the context of h, in that scope. It is nil when the
// session is not open any more. In a scope that was undone the new handle holds
// nothing, as Err says.
func (h *Handle) Enter(scope *Scope) *Handle {
	h.life.mu.Lock()
	defer h.life.mu.Unlock()
	if !h.open() {
		return nil
	}
	entered := &Handle{life: h.life, scope: scope}
	for s := scope; s != nil; s = s.outer {
		if s.undone != nil {
			entered.revoked = s.undone
			entered.end(s.undone)
			return entered
		}
	}
	h.life.add(entered)
	if h.life.lost != nil {
		entered.end(h.life.lost)
	}
	return entered
}

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
	if h.cause != nil {
		cancel(h.cause)
	}
	return ctx
}

// Leave gives the handle back and ends its context. With last, it was the last one of an open
// session, which is ending now: the caller has to give the connection back, and call MarkEnded. err
// is the reason for which the handle held nothing any more. A second call does nothing.
func (h *Handle) Leave() (last bool, err error) {
	h.life.mu.Lock()
	defer h.life.mu.Unlock()
	if h.life.remove(h) {
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
	h.life.remove(h)
	h.revoked = reason
	h.end(reason)
}

// end ends the context of the handle, with the mutex held.
func (h *Handle) end(cause error) {
	if h.cause != nil {
		return
	}
	h.cause = cause
	if h.cancel != nil {
		h.cancel(cause)
	}
}
