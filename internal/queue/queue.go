// Package queue is where callers of one process wait for the same rows without a connection. It
// needs no database.
package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Lines are the waiting lines of a process, named by K. Each lets so many callers have a session at
// the server. The others wait in the order in which they came. Everything happens under one mutex,
// so no wake-up is lost: who stops waiting leaves the line, or hands on what came meanwhile.
type Lines[K comparable] struct {
	closing context.Context // ends all waits, with its cause
	limit   int             // sessions of each line

	mu    sync.Mutex
	lines map[K]*line[K] // those with sessions
}

// line is guarded by the mutex of Lines. Somebody waits only while there is no room.
type line[K comparable] struct {
	sessions, asking int // asking are those that are not granted yet
	waiting          []*Place[K]
}

// Place is that of a caller. GoOn of a nil Place does nothing.
type Place[K comparable] struct {
	lines    *Lines[K]
	in       *line[K]
	name     K
	admitted chan struct{} // closed when the caller that waits may go on
	Crowded  bool          // others of the line had a session; else the caller need not wait
	Waits    bool          // the caller has to wait
	state    State         // guarded by the mutex of lines
}

// State is that of a Place. It only goes on.
type State int

const (
	waits State = iota // in the line
	asks               // has a session, which may wait at the server

	// Granted has a session that waits no more at the server, or goes there alone: then nobody else
	// learns when it is granted, since it waits, works and ends in one call.
	Granted
	// Left is given back.
	Left
)

// New returns lines with limit sessions each. The end of closing ends all waits, also later ones;
// who has a session keeps it.
func New[K comparable](closing context.Context, limit int) *Lines[K] {
	return &Lines[K]{closing: closing, limit: limit, lines: make(map[K]*line[K])}
}

// Enter gives the caller a place, which it leaves in the end. A try gets none, nil, if it had to
// wait.
func (l *Lines[K]) Enter(name K, try bool) *Place[K] {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.lines[name]
	if in == nil {
		in = &line[K]{}
		l.lines[name] = in
	}
	p := &Place[K]{lines: l, in: in, name: name, Crowded: in.sessions > 0}
	switch {
	case p.admit():
	case try:
		return nil
	default:
		p.Waits, p.admitted = true, make(chan struct{})
		in.waiting = append(in.waiting, p)
	}
	return p
}

// admit takes a session if there is room. One is left for who holds: a second that asks could
// overtake the first on the way.
func (p *Place[K]) admit() bool {
	limit := p.lines.limit
	if p.in.sessions >= limit || p.in.asking >= max(limit-1, 1) {
		return false
	}
	p.state = asks
	p.in.sessions++
	p.in.asking++
	return true
}

// Wait returns when the caller may have a session. After an error its place is given back: ctx has
// ended, or closing has.
func (p *Place[K]) Wait(ctx context.Context) error {
	if !p.Waits {
		return nil
	}
	select {
	case <-p.admitted:
		return nil
	case <-p.lines.closing.Done():
		p.GoOn(Left)
		return context.Cause(p.lines.closing)
	case <-ctx.Done():
		p.GoOn(Left)
		return fmt.Errorf("left the queue of this process, in which %d others wait", p.lines.Waiting(p.name))
	}
}

// GoOn brings the place to a later state. Others may be admitted then.
func (p *Place[K]) GoOn(to State) {
	if p == nil {
		return
	}
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	from, in := p.state, p.in
	if to <= from {
		return
	}
	p.state = to
	if from == asks {
		in.asking--
	}
	if from == waits {
		at := slices.Index(in.waiting, p)
		in.waiting = slices.Delete(in.waiting, at, at+1)
	} else if to == Left {
		in.sessions--
	}
	for len(in.waiting) > 0 && in.waiting[0].admit() {
		close(in.waiting[0].admitted)
		in.waiting = in.waiting[1:]
	}
	if in.sessions == 0 {
		delete(p.lines.lines, p.name)
	}
}

// Waiting is how many callers wait in the line of that name.
func (l *Lines[K]) Waiting(name K) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in := l.lines[name]; in != nil {
		n = len(in.waiting)
	}
	return n
}
