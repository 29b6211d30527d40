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
//
// The statements that work sends itself take no turn. As with any transaction of a client library,
// no other goroutine may use it meanwhile, nor call with its context.
type Turns struct {
	whole *Scope

	mu        sync.Mutex
	innermost *Scope
	nested    chan struct{} // closed when a nested Do begins in the innermost scope; nil: nobody waits for that
}

// Scope is where in a session a call is made: in the session as a whole, or in the work of a nested
// Do.
type Scope struct {
	outer  *Scope        // nil: the session as a whole
	sem    chan struct{} // full while somebody has the turn
	ended  chan struct{} // closed with the turn taken, which is never given back
	undone error         // why what was locked here may be free; nil: it is not; guarded by the mutex of Life
}

func newScope(outer *Scope) *Scope {
	return &Scope{outer: outer, sem: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Within tells whether s is other, or inside it.
func (s *Scope) Within(other *Scope) bool {
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

// Turn is the right to send for a call in a scope. One call of the scope has it at a time.
type Turn struct{ Scope *Scope }

// Give gives the turn back.
func (t *Turn) Give() { <-t.Scope.sem }

// NewTurns returns the turns of a session, and the scope of the session as a whole.
func NewTurns() (*Turns, *Scope) {
	whole := newScope(nil)
	return &Turns{whole: whole, innermost: whole}, whole
}

// Take waits for the turn of a call in scope, which the caller must give back. A scope that has
// ended stands for the one around it: a Lock that was taken in a nested Do, and outlives it, goes
// on there. After an error the caller has no turn: [ErrNested] as soon as a nested Do is running in
// the scope, [ErrEnded], or the error of ctx.
func (t *Turns) Take(ctx context.Context, scope *Scope) (*Turn, error) {
	for {
		nearest, nested, err := t.nearest(scope)
		if err != nil {
			return nil, err
		}
		select {
		case nearest.sem <- struct{}{}:
			return &Turn{nearest}, nil
		case <-nearest.ended: // look again
		case <-nested:
			return nil, ErrNested
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// nearest is the nearest scope around a call that has not ended, where no nested Do is running, and
// a channel that is closed when one begins.
func (t *Turns) nearest(scope *Scope) (nearest *Scope, nested <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for scope.hasEnded() {
		if scope = scope.outer; scope == nil {
			return nil, nil, ErrEnded
		}
	}
	if scope != t.innermost {
		return nil, nil, ErrNested
	}
	if t.nested == nil {
		t.nested = make(chan struct{})
	}
	return scope, t.nested, nil
}

// Try takes the turn of the session as a whole if nobody has it.
func (t *Turns) Try() (turn *Turn, ok bool) {
	select {
	case t.whole.sem <- struct{}{}:
		return &Turn{t.whole}, true
	default:
		return nil, false
	}
}

// takeWhole waits for the turn of the session as a whole. It returns nil when the session has
// ended.
func (t *Turns) takeWhole() *Turn {
	select {
	case t.whole.sem <- struct{}{}:
		return &Turn{t.whole}
	case <-t.whole.ended:
		return nil
	}
}

// Nest begins the work of a nested Do, which keeps its turn. It returns the scope of the calls of
// that work.
func (t *Turns) Nest(turn *Turn) *Scope {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.innermost = newScope(turn.Scope)
	if t.nested != nil {
		close(t.nested)
		t.nested = nil
	}
	return t.innermost
}

// Unnest ends the work that Nest began, when the calls that are under way in it have returned. When
// they have not done so for patience, it calls overdue, which must see to it that they do.
func (t *Turns) Unnest(inner *Scope, patience time.Duration, overdue func()) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case inner.sem <- struct{}{}:
	case <-late.C:
		overdue() // before anybody else may use the connection
		inner.sem <- struct{}{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.innermost, t.nested = inner.outer, nil // who waits in inner is told by its end
	close(inner.ended)
}

// Close takes the last turn of the session, and lets nobody have one again. It returns false, and
// has done nothing, when somebody else has had the turn for as long as patience.
func (t *Turns) Close(patience time.Duration) bool {
	if _, free := t.Try(); !free {
		late := time.NewTimer(patience)
		defer late.Stop()
		select {
		case t.whole.sem <- struct{}{}:
		case <-late.C:
			return false
		}
	}
	close(t.whole.ended)
	return true
}
