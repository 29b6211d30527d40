package heartbeat

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Sessions are open ones, which are looked after by one timer: so a lock that is held briefly costs
// nothing for it.
type Sessions[S Looker] struct {
	beat time.Duration

	mu     sync.Mutex
	open   map[S]struct{}
	timer  *time.Timer // calls look; nil: none is set
	closed bool
}

// Looker is one of Sessions. Look is that of its Heartbeat.
type Looker interface {
	comparable
	Look()
}

// NewSessions returns Sessions of that lease, of which there is none yet.
func NewSessions[S Looker](lease time.Duration) *Sessions[S] {
	return &Sessions[S]{beat: Beat(lease), open: make(map[S]struct{})}
}

// Add adds an open session. It returns false when Close has come before: nobody else ends this one.
func (s *Sessions[S]) Add(one S) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[one] = struct{}{}
	if s.timer == nil {
		s.timer = time.AfterFunc(s.beat, s.look)
	}
	return !s.closed
}

// Remove takes a session off that has ended.
func (s *Sessions[S]) Remove(one S) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, one)
}

// Close lets nobody in any more.
func (s *Sessions[S]) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// All are those that are open.
func (s *Sessions[S]) All() []S {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.open))
}

// look looks after all sessions, and comes again as long as there are some.
func (s *Sessions[S]) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	if len(s.open) > 0 {
		s.timer = time.AfterFunc(s.beat, s.look)
	}
	for one := range s.open {
		go one.Look()
	}
}
