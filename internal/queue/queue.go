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
// first that waits.
//
// No wake-up is lost: a place passes from hand to hand under one mutex. A caller stops waiting
// under the same mutex, so it has either left the line, or was given a place and has to pass it on.
type Lines[K comparable] struct {
	limit int // places of each line

	mu     sync.Mutex
	lines  map[K]*line[K] // those with places taken
	closed error
}

// line is guarded by the mutex of Lines. Somebody waits only while there is no room.
type line[K comparable] struct {
	taken       int // places
	asking      int // those whose session still waits at the server, or is on the way there, and is not blind
	waiting     int
	first, last *waiter[K]
}

// waiter is a caller in a line.
type waiter[K comparable] struct {
	prev, next *waiter[K]
	blind      bool
	inLine     bool
	admitted   chan struct{} // closed when one of what follows is set
	place      *Place[K]
	err        error
}

// New returns lines with limit places each.
func New[K comparable](limit int) *Lines[K] {
	return &Lines[K]{limit: limit, lines: make(map[K]*line[K])}
}

// Place is the right to have a session of a line at the server. The methods of a nil Place do
// nothing.
type Place[K comparable] struct {
	lines *Lines[K]
	name  K

	// Guarded by the mutex of lines.
	asking bool
	left   bool
}

// Wait is how a caller waits in a line.
type Wait struct {
	Blind  bool   // nobody learns when its session is granted: it waits, works and ends in one flight
	Queued func() // is called when the caller has to wait, and is in line
}

// Enter waits for a place in the line of that name, first come, first served. After an error the
// caller has nothing: ctx has ended, or it is that of Close. A place that comes at the moment in
// which ctx ends is returned without an error.
func (l *Lines[K]) Enter(ctx context.Context, name K, wait Wait) (*Place[K], error) {
	l.mu.Lock()
	if l.closed != nil {
		defer l.mu.Unlock()
		return nil, l.closed
	}
	in := l.line(name)
	if l.room(in) {
		defer l.mu.Unlock()
		return l.take(in, name, !wait.Blind), nil
	}
	w := &waiter[K]{blind: wait.Blind, admitted: make(chan struct{})}
	in.insert(w)
	l.mu.Unlock()

	told := false
	defer func() {
		if !told { // Queued panicked, or called runtime.Goexit
			l.abandon(in, w)
		}
	}()
	wait.Queued()
	told = true
	select {
	case <-w.admitted:
		return w.place, w.err
	case <-ctx.Done():
	}
	if others, left := l.stop(in, w); left {
		return nil, fmt.Errorf("left the queue of this process, in which %d others wait", others)
	}
	return w.place, w.err
}

// stop takes a caller out of the line, unless it was admitted before.
func (l *Lines[K]) stop(in *line[K], w *waiter[K]) (others int, left bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if left = w.inLine; left {
		in.remove(w)
	}
	return in.waiting, left
}

// abandon takes a caller out of the line, or passes on its place.
func (l *Lines[K]) abandon(in *line[K], w *waiter[K]) {
	if _, left := l.stop(in, w); !left {
		w.place.Leave()
	}
}

// Try takes a place of the line of that name if one is free and nobody waits, for a session that
// does not wait at the server either.
func (l *Lines[K]) Try(name K) (place *Place[K], ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return nil, false, l.closed
	}
	in := l.line(name)
	if in.first != nil || in.taken == l.limit {
		return nil, false, nil
	}
	return l.take(in, name, false), true, nil
}

// Waiting is how many callers wait in the line of that name.
func (l *Lines[K]) Waiting(name K) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in := l.lines[name]; in != nil {
		return in.waiting
	}
	return 0
}

// line is called with the mutex held. The caller takes a place of a new line.
func (l *Lines[K]) line(name K) *line[K] {
	in := l.lines[name]
	if in == nil {
		in = &line[K]{}
		l.lines[name] = in
	}
	return in
}

// room tells whether the next caller may ask at the server. With two places, one session asks while
// another holds: a second that asks could overtake the first on the way. A blind one counts as one
// that holds: else the second place would be empty for as long as it is on the way.
func (l *Lines[K]) room(in *line[K]) bool {
	return in.taken < l.limit && in.asking < max(l.limit-1, 1)
}

// take takes a place, with the mutex held.
func (l *Lines[K]) take(in *line[K], name K, asking bool) *Place[K] {
	in.taken++
	if asking {
		in.asking++
	}
	return &Place[K]{lines: l, name: name, asking: asking}
}

// admitWaiting gives places to those that wait, as far as there is room. It is called with the
// mutex held.
func (l *Lines[K]) admitWaiting(in *line[K], name K) {
	for in.first != nil && l.room(in) {
		next := in.first
		next.place = l.take(in, name, !next.blind)
		in.admit(next)
	}
}

// Close ends all waits with err, also later ones. Places are kept until they are left.
func (l *Lines[K]) Close(err error) {
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

// Granted says that the session of the place waits no more at the server.
func (p *Place[K]) Granted() {
	if p == nil {
		return
	}
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	p.granted()
}

// granted is called with the mutex held.
func (p *Place[K]) granted() {
	if !p.asking {
		return
	}
	p.asking = false
	in := p.lines.lines[p.name]
	in.asking--
	p.lines.admitWaiting(in, p.name)
}

// Leave gives the place to the first that waits. A second call does nothing.
func (p *Place[K]) Leave() {
	if p == nil {
		return
	}
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	if p.left {
		return
	}
	p.left = true
	p.granted()
	in := p.lines.lines[p.name]
	in.taken--
	p.lines.admitWaiting(in, p.name)
	if in.taken == 0 {
		delete(p.lines.lines, p.name)
	}
}

// Each calls visit for each line in which somebody waits. It is called with a mutex held, and must
// not call Lines or Place.
func (l *Lines[K]) Each(visit func(name K, waiting int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, in := range l.lines {
		if in.waiting > 0 {
			visit(name, in.waiting)
		}
	}
}

// admit ends the wait of w, whose place or error is set.
func (in *line[K]) admit(w *waiter[K]) {
	in.remove(w)
	close(w.admitted)
}

func (in *line[K]) insert(w *waiter[K]) {
	w.inLine, w.prev = true, in.last
	if w.prev == nil {
		in.first = w
	} else {
		w.prev.next = w
	}
	in.last = w
	in.waiting++
}

func (in *line[K]) remove(w *waiter[K]) {
	if w.prev == nil {
		in.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		in.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.inLine, w.prev, w.next = false, nil, nil
	in.waiting--
}
