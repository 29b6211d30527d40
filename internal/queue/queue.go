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
// so no wake-up is lost: who stops waiting has either left the line, or was admitted.
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

// Place is that of a caller: in the line, or with a session. The methods of a nil Place do nothing.
type Place[K comparable] struct {
	lines    *Lines[K]
	in       *line[K]
	name     K
	admitted chan struct{} // closed when the caller may go on; nil: it need not wait
	Crowded  bool          // others of the line had a session; else the caller need not wait

	// Guarded by the mutex of lines.
	asks    bool // it is to count as asking
	session bool
}

// New returns lines with limit sessions each. The end of closing ends all waits, also later ones;
// who has a session keeps it.
func New[K comparable](closing context.Context, limit int) *Lines[K] {
	return &Lines[K]{closing: closing, limit: limit, lines: make(map[K]*line[K])}
}

// Enter gives the caller a place, which Leave gives back. Of one that goes alone nobody learns when
// its session is granted: it waits, works and ends in one call.
func (l *Lines[K]) Enter(name K, alone bool) *Place[K] {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.place(name)
	p.Crowded = p.in.sessions > 0
	if p.asks = !alone; !p.admit() {
		p.admitted = make(chan struct{})
		p.in.waiting = append(p.in.waiting, p)
	}
	return p
}

// Try gives a place with a session that does not wait at the server either, if one is left and
// nobody waits.
func (l *Lines[K]) Try(name K) (p *Place[K], ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p = l.place(name)
	if ok = len(p.in.waiting) == 0 && p.in.sessions < l.limit; ok {
		p.take()
	}
	return p, ok
}

func (l *Lines[K]) place(name K) *Place[K] {
	in := l.lines[name]
	if in == nil {
		in = &line[K]{}
	}
	return &Place[K]{lines: l, in: in, name: name}
}

// admit takes a session if there is room. One is left for who holds: a second that asks could
// overtake the first on the way. One that goes alone counts as one that holds: else that session
// would be missing for as long as it is on the way.
func (p *Place[K]) admit() bool {
	limit := p.lines.limit
	if p.in.sessions >= limit || p.in.asking >= max(limit-1, 1) {
		return false
	}
	p.take()
	return true
}

func (p *Place[K]) take() {
	p.session = true
	p.in.sessions++
	if p.asks {
		p.in.asking++
	}
	p.lines.lines[p.name] = p.in
}

// Waits tells whether the caller has to wait.
func (p *Place[K]) Waits() bool { return p.admitted != nil }

// Wait returns when the caller may have a session. After an error its place is given back: ctx has
// ended, or closing has. A session that comes as ctx ends comes without an error.
func (p *Place[K]) Wait(ctx context.Context) error {
	if !p.Waits() {
		return nil
	}
	select {
	case <-p.admitted:
	case <-ctx.Done():
	case <-p.lines.closing.Done():
	}
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	if p.session {
		return nil
	}
	p.stop()
	if p.lines.closing.Err() != nil {
		return context.Cause(p.lines.closing)
	}
	return fmt.Errorf("left the queue of this process, in which %d others wait", len(p.in.waiting))
}

// stop takes the place out of the line, if it waits there.
func (p *Place[K]) stop() {
	if at := slices.Index(p.in.waiting, p); at >= 0 {
		p.in.waiting = slices.Delete(p.in.waiting, at, at+1)
	}
}

// Granted says that the session waits no more at the server.
func (p *Place[K]) Granted() { p.done(false) }

// Leave gives the place back. A second call does nothing.
func (p *Place[K]) Leave() { p.done(true) }

func (p *Place[K]) done(leave bool) {
	if p == nil {
		return
	}
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	if !p.session {
		if leave {
			p.stop()
		}
		return
	}
	if p.asks {
		p.asks = false
		p.in.asking--
	}
	if leave {
		p.session = false
		p.in.sessions--
	}
	for len(p.in.waiting) > 0 && p.in.waiting[0].admit() {
		close(p.in.waiting[0].admitted)
		p.in.waiting = p.in.waiting[1:]
	}
	if p.in.sessions == 0 {
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
