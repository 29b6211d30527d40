// Package queue is where callers of one process wait for the same rows without a connection.
//
// [Lines] has a line for each set of rows. A line has a number of places, and whoever has one may
// keep a session at the server. The others wait in the order in which they came. It needs no
// database.
package queue

import (
	"context"
	"fmt"
	"sync"
)

// Lines are the lines of a process, named by K. A caller that has left its place gives it to the
// first that waits, or hands over a session S with which the place is used.
//
// No wake-up is lost: a place, or a session, passes from hand to hand under one mutex. A caller
// stops waiting under the same mutex, so it has either left the line, or was given what it waited
// for and has to pass it on.
type Lines[K comparable, S any] struct {
	limit int // places of each line; 0: nobody waits

	mu     sync.Mutex
	lines  map[K]*line[K, S] // those with places taken
	closed error
}

// line is guarded by the mutex of Lines. Somebody waits only while all places are taken.
type line[K comparable, S any] struct {
	taken       int // places
	waiting     int
	first, last *waiter[K, S]
}

// waiter is a caller in a line.
type waiter[K comparable, S any] struct {
	before, behind *waiter[K, S]
	takesSession   bool
	inLine         bool
	admitted       chan struct{} // closed when what follows is set
	Admission[K, S]
	err error
}

// Admission is what a caller has waited for: a place, or a session that was handed over with its
// place.
type Admission[K comparable, S any] struct {
	Place   *Place[K, S]
	Session S
	Handed  bool // Session is set, and Place is not
}

// New returns lines with limit places each. With a limit of 0 nobody waits, and a Place is nil.
func New[K comparable, S any](limit int) *Lines[K, S] {
	return &Lines[K, S]{limit: limit, lines: make(map[K]*line[K, S])}
}

// Place is the right to have a session of a line at the server. The methods of a nil Place do
// nothing.
type Place[K comparable, S any] struct {
	lines *Lines[K, S]
	name  K
	left  bool // guarded by the mutex of lines
}

// Enter waits for a place in the line of that name, first come, first served. With takesSession, a
// session that another caller hands over will do. After an error the caller has nothing:
// ctx has ended, or it is that of Close. What comes at the moment in which ctx ends is returned
// without an error. queued is called when the caller has to wait, and is in line.
func (l *Lines[K, S]) Enter(ctx context.Context, name K, takesSession bool, queued func()) (Admission[K, S], error) {
	if l.limit == 0 {
		return Admission[K, S]{}, nil
	}
	l.mu.Lock()
	if l.closed != nil {
		defer l.mu.Unlock()
		return Admission[K, S]{}, l.closed
	}
	if place := l.take(name); place != nil {
		l.mu.Unlock()
		return Admission[K, S]{Place: place}, nil
	}
	in := l.lines[name]
	w := &waiter[K, S]{takesSession: takesSession, admitted: make(chan struct{})}
	in.join(w)
	l.mu.Unlock()

	queued()
	select {
	case <-w.admitted:
		return w.Admission, w.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.inLine {
		in.leave(w)
		return Admission[K, S]{}, fmt.Errorf("left the queue of this process, in which %d others wait", in.waiting)
	}
	return w.Admission, w.err
}

// Try takes a place of the line of that name if one is free, so that nobody waits.
func (l *Lines[K, S]) Try(name K) (place *Place[K, S], ok bool, err error) {
	if l.limit == 0 {
		return nil, true, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return nil, false, l.closed
	}
	place = l.take(name)
	return place, place != nil, nil
}

// take takes a free place, with the mutex held. It returns nil when all are taken.
func (l *Lines[K, S]) take(name K) *Place[K, S] {
	in := l.lines[name]
	if in == nil {
		in = &line[K, S]{}
		l.lines[name] = in
	}
	if in.taken == l.limit {
		return nil
	}
	in.taken++
	return &Place[K, S]{lines: l, name: name}
}

// Close ends all waits with err, also later ones. Places are kept until they are left.
func (l *Lines[K, S]) Close(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return
	}
	l.closed = err
	for _, in := range l.lines {
		for w := in.first; w != nil; w = in.first {
			w.err = err
			in.admit(w)
		}
	}
}

// Leave gives the place to the first that waits. A second call does nothing.
func (p *Place[K, S]) Leave() {
	if p == nil {
		return
	}
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	if p.left {
		return
	}
	p.left = true
	in := p.lines.lines[p.name]
	if next := in.first; next != nil {
		next.Place = &Place[K, S]{lines: p.lines, name: p.name}
		in.admit(next)
		return
	}
	if in.taken--; in.taken == 0 {
		delete(p.lines.lines, p.name)
	}
}

// HandOver gives a session, which keeps the place, to the first that waits, if that takes one. It
// returns whether it did. handed makes the session ready for its next owner, or returns false: then
// nothing has changed. It is called with a mutex held, and must not call Lines or Place.
func (p *Place[K, S]) HandOver(handed func() (S, bool)) bool {
	if p == nil {
		return false
	}
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	if p.left {
		return false
	}
	in := p.lines.lines[p.name]
	next := in.first
	if next == nil || !next.takesSession {
		return false
	}
	session, ok := handed()
	if !ok {
		return false
	}
	next.Session, next.Handed = session, true
	in.admit(next)
	return true
}

// Waiting is how many callers wait in the line.
func (p *Place[K, S]) Waiting() int {
	if p == nil {
		return 0
	}
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	if in := p.lines.lines[p.name]; in != nil {
		return in.waiting
	}
	return 0
}

// admit ends the wait of w, whose Admission or error is set.
func (in *line[K, S]) admit(w *waiter[K, S]) {
	in.leave(w)
	close(w.admitted)
}

func (in *line[K, S]) join(w *waiter[K, S]) {
	w.inLine, w.before = true, in.last
	if in.last == nil {
		in.first = w
	} else {
		in.last.behind = w
	}
	in.last = w
	in.waiting++
}

func (in *line[K, S]) leave(w *waiter[K, S]) {
	if w.before == nil {
		in.first = w.behind
	} else {
		w.before.behind = w.behind
	}
	if w.behind == nil {
		in.last = w.before
	} else {
		w.behind.before = w.before
	}
	w.inLine, w.before, w.behind = false, nil, nil
	in.waiting--
}
