package lifecycle

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Sessions are open ones, which are looked after by one timer: so a lock that is held briefly costs
// nothing for it.
type Sessions[S Session] struct {
	beat time.Duration

	mu     sync.Mutex
	open   map[S]struct{}
	timer  *time.Timer // calls look; nil before the first session
	set    bool        // the timer is
	closed bool
}

// Session is one of Sessions. Look is that of its Heartbeat.
type Session interface {
	comparable
	Look()
}

// NewSessions returns Sessions of that lease, of which there is none yet.
func NewSessions[S Session](lease time.Duration) *Sessions[S] {
	return &Sessions[S]{beat: Beat(lease), open: make(map[S]struct{})}
}

// Add adds an open session. It returns false when Close has come before: nobody else ends this one.
func (s *Sessions[S]) Add(one S) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[one] = struct{}{}
	switch {
	case s.set:
	case s.timer == nil:
		s.timer = time.AfterFunc(s.beat, s.look)
	default:
		s.timer.Reset(s.beat)
	}
	s.set = true
	return !s.closed
}

// Remove takes a session off that has ended.
func (s *Sessions[S]) Remove(one S) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, one)
}

// Close returns the sessions that are open.
func (s *Sessions[S]) Close() []S {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return slices.Collect(maps.Keys(s.open))
}

// Any tells whether one of the sessions is as is says, which is called with a mutex held.
func (s *Sessions[S]) Any(is func(S) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.open {
		if is(one) {
			return true
		}
	}
	return false
}

// look looks after all sessions, and comes again as long as there are some.
func (s *Sessions[S]) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set = len(s.open) > 0; !s.set {
		return
	}
	s.timer.Reset(s.beat)
	for one := range s.open {
		go one.Look()
	}
}
