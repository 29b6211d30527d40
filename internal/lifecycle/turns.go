package lifecycle

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrNested is the error of a call in a scope in which a nested Do is running.
var ErrNested = errors.New("a nested Do is running in this session: a call inside its work must use the " +
	"context that the work got, a call beside it must wait until it has returned")

// ErrEnded is the error of a call in a session that has ended.
var ErrEnded = errors.New("the session has ended")

// Turns says who may send next on the one connection of a session.
//
// Calls in a scope take turns. Each keeps its turn until the server has answered. A nested Do keeps
// the turn of its scope until its work has returned, and the calls of the work take turns in a
// scope of their own. Nobody else gets a turn meanwhile: savepoints are a stack, and what was
// locked beside the work would be undone with it.
type Turns struct {
	whole *Scope

	mu        sync.Mutex
	innermost *Scope
}

// Scope is where in a session a call is made: in the session as a whole, or in the work of a nested
// Do.
type Scope struct {
	outer *Scope        // nil: the session as a whole
	taken chan struct{} // full while somebody has the turn
	ended chan struct{} // closed with the turn taken, which is never given back

	nested chan struct{} // guarded by the mutex of Turns; closed when a nested Do begins; nil: nobody waits for that
}

func newScope(outer *Scope) *Scope {
	return &Scope{outer: outer, taken: make(chan struct{}, 1), ended: make(chan struct{})}
}

// within tells whether s is other, or inside it.
func (s *Scope) within(other *Scope) bool {
	for ; s != nil; s = s.outer {
		if s == other {
			return true
		}
	}
	return false
}

func (s *Scope) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// try takes the turn if nobody has it.
func (s *Scope) try() bool {
	select {
	case s.taken <- struct{}{}:
		return true
	default:
		return false
	}
}

// Give gives the turn back.
func (s *Scope) Give() { <-s.taken }

// NewTurns returns the turns of a session, and the scope of the session as a whole.
func NewTurns() (*Turns, *Scope) {
	whole := newScope(nil)
	return &Turns{whole: whole, innermost: whole}, whole
}

// Take waits for the turn of a call in scope, and returns the scope whose turn the caller has now
// and must give back: the nearest one around that has not ended. After an error the caller has
// none: [ErrNested] as soon as a nested Do is running there, [ErrEnded], or the error of ctx.
func (t *Turns) Take(ctx context.Context, scope *Scope) (*Scope, error) {
	for {
		for scope != nil && scope.hasEnded() {
			scope = scope.outer
		}
		if scope == nil {
			return nil, ErrEnded
		}
		nested := t.untilNested(scope)
		if nested == nil {
			return nil, ErrNested
		}
		select {
		case scope.taken <- struct{}{}:
			return scope, nil
		case <-scope.ended:
		case <-nested:
			return nil, ErrNested
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// untilNested is closed when a nested Do begins in scope. It is nil when one is running there.
func (t *Turns) untilNested(scope *Scope) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if scope != t.innermost && !scope.hasEnded() {
		return nil
	}
	if scope.nested == nil {
		scope.nested = make(chan struct{})
	}
	return scope.nested
}

// Try takes the turn of the session as a whole if nobody has it.
func (t *Turns) Try() bool { return t.whole.try() }

// Give gives the turn of the session as a whole back.
func (t *Turns) Give() { t.whole.Give() }

// Nest begins the work of a nested Do, which has the turn of scope and keeps it. It returns the
// scope of the calls of that work.
func (t *Turns) Nest(scope *Scope) *Scope {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.innermost = newScope(scope)
	if scope.nested != nil {
		close(scope.nested)
		scope.nested = nil
	}
	return t.innermost
}

// Unnest ends the work that Nest began, when the calls that are under way in it have returned. When
// they have not done so for patience, it calls overdue, which must see to it that they do.
func (t *Turns) Unnest(inner *Scope, patience time.Duration, overdue func()) {
	late := time.AfterFunc(patience, overdue)
	inner.taken <- struct{}{}
	late.Stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.innermost = inner.outer
	close(inner.ended)
}

// Close takes the last turn of the session, and lets nobody have one again. It returns false, and
// does nothing, when ctx ends before.
func (t *Turns) Close(ctx context.Context) bool {
	select {
	case t.whole.taken <- struct{}{}:
		close(t.whole.ended)
		return true
	case <-ctx.Done():
		return false
	}
}
