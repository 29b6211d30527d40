// Package queue is where callers of one process wait for the same rows without a connection. It
// needs no database.
package queue

import (
	"container/list"
	"context"
	"fmt"
	"sync"
)

// Lines are the waiting lines of a process, named by K. Each lets so many callers have a session at
// the server. The others wait in the order in which they came. Everything happens under one mutex,
// so no wake-up is lost: who stops waiting has either left the line, or was admitted.
type Lines[K comparable] struct {
	limit int // sessions of each line

	mu     sync.Mutex
	lines  map[K]*line // those with sessions
	closed error
}

// line is guarded by the mutex of Lines. Somebody waits only while there is no room.
type line struct {
	sessions, asking int // asking are those that are not granted yet
	waiting          list.List
}

// Place is that of a caller: in the line, or with a session. The methods of a nil Place do nothing.
type Place[K comparable] struct {
	lines    *Lines[K]
	in       *line
	name     K
	admitted chan struct{} // closed at the end of the wait; nil: the caller need not wait

	// Guarded by the mutex of lines.
	asks    bool // it is to count as asking
	waiting *list.Element
	session bool
	err     error // of Close
}

// New returns lines with limit sessions each.
func New[K comparable](limit int) *Lines[K] {
	return &Lines[K]{limit: limit, lines: make(map[K]*line)}
}

// Enter gives the caller a place, which Leave gives back. Of one that goes alone nobody learns when
// its session is granted: it waits, works and ends in one trip.
func (l *Lines[K]) Enter(name K, alone bool) *Place[K] {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.place(name)
	p.asks = !alone
	if p.admit() {
		return p
	}
	p.admitted = make(chan struct{})
	if p.err = l.closed; p.err != nil {
		close(p.admitted)
	} else {
		p.waiting = p.in.waiting.PushBack(p)
	}
	return p
}

// Try gives a place with a session that does not wait at the server either, if one is left and
// nobody waits.
func (l *Lines[K]) Try(name K) (p *Place[K], ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p = l.place(name)
	ok = p.in.waiting.Len() == 0 && p.in.sessions < l.limit && p.take()
	return p, ok
}

// place is called with the mutex held.
func (l *Lines[K]) place(name K) *Place[K] {
	in := l.lines[name]
	if in == nil {
		in = &line{}
	}
	return &Place[K]{lines: l, in: in, name: name}
}

// admit takes a session if there is room, with the mutex held. One is left for who holds: a second
// that asks could overtake the first on the way. One that goes alone counts as one that holds: else
// that session would be missing for as long as it is on the way.
func (p *Place[K]) admit() bool {
	limit := p.lines.limit
	return p.in.sessions < limit && p.in.asking < max(limit-1, 1) && p.take()
}

func (p *Place[K]) take() bool {
	p.session = true
	p.in.sessions++
	if p.asks {
		p.in.asking++
	}
	p.lines.lines[p.name] = p.in
	return true
}

// Waits tells whether the caller has to call Wait.
func (p *Place[K]) Waits() bool { return p.admitted != nil }

// Wait returns when the caller may have a session. After an error its place is given back: ctx has
// ended, or it is that of Close. A session that comes as ctx ends comes without an error.
func (p *Place[K]) Wait(ctx context.Context) error {
	select {
	case <-p.admitted:
	case <-ctx.Done():
	}
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	if p.waiting != nil {
		p.stop()
		return fmt.Errorf("left the queue of this process, in which %d others wait", p.in.waiting.Len())
	}
	return p.err
}

// stop ends the wait, with the mutex held.
func (p *Place[K]) stop() {
	p.in.waiting.Remove(p.waiting)
	p.waiting = nil
	close(p.admitted)
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
	if leave && p.waiting != nil {
		p.stop()
	}
	if !p.session {
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
	for first := p.in.waiting.Front(); first != nil && first.Value.(*Place[K]).admit(); first = p.in.waiting.Front() {
		first.Value.(*Place[K]).stop()
	}
	if p.in.sessions == 0 {
		delete(p.lines.lines, p.name)
	}
}

// Close ends all waits with err, also later ones. Who has a session keeps it.
func (l *Lines[K]) Close(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return
	}
	l.closed = err
	for _, in := range l.lines {
		for first := in.waiting.Front(); first != nil; first = in.waiting.Front() {
			first.Value.(*Place[K]).err = err
			first.Value.(*Place[K]).stop()
		}
	}
}

// Waiting is how many callers wait in the line of that name.
func (l *Lines[K]) Waiting(name K) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in := l.lines[name]; in != nil {
		n = in.waiting.Len()
	}
	return n
}
