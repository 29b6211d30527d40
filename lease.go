package txlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txlock/txlock/internal/peer"
)

// vigil is how a session learns that it is lost, without a call of its owner's.
//
//   - When the server ends the session, its kernel closes the connection, and ours reports that at once. One watcher
//     serves all sessions of the process.
//   - When the network goes silent nothing is reported. The server ends the session by its own timer, when no statement
//     has come for the lease. A heartbeat keeps that timer from running out, and its missing answer tells the owner, before
//     the server can have given the lock to another.
//
// A heartbeat is a statement. It is sent only when nobody else sends on the connection: with the turn held, and not while
// work runs, which may have left rows of a query open. It has no goroutine while it waits.
type vigil struct {
	unwatch func()
	beat    *time.Timer // runs keep
	// heardOf is the moment behind which the server's timer has begun at the latest: when the last answered heartbeat was
	// sent, or when a statement that may have waited long was answered. Go's clock is monotonic here. Guarded by mu.
	heardOf time.Time
}

// beats is how many heartbeats fall into a lease. More would shorten the hiccup that may come between two of them only
// a little.
const beats = 6

// margin is how much earlier than the server the owner gives up: for timers that fire late, and clocks that differ in pace.
func margin(lease time.Duration) time.Duration { return min(lease/10, time.Second) }

// watch begins the vigil, before the session is shared.
func (s *session[Tx]) watch() {
	s.heardOf = time.Now()
	s.mu.Lock() // keep reads beat
	defer s.mu.Unlock()
	s.beat = time.AfterFunc(s.locker.config.lease/beats, s.keep)
	s.unwatch = peer.Watch(s.inner.Socket(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gone(errors.New("the server closed the connection"))
	})
}

// rest ends the vigil, by the one who set over, before the connection is used for the last time. A heartbeat that is under way
// holds the turn.
func (s *session[Tx]) rest() {
	s.beat.Stop()
	s.unwatch()
}

// heard says that the server has answered just now. It is called with mu held.
func (s *session[Tx]) heard() {
	s.heardOf = time.Now()
	if !s.over {
		s.beat.Reset(s.locker.config.lease / beats)
	}
}

// keep sends a heartbeat, and waits for the answer as long as the lease allows: a hiccup that is shorter does no harm. Where
// somebody else sends on the connection, that is a sign of life, and heard, which is called behind it, sets the timer again.
func (s *session[Tx]) keep() {
	select {
	case s.turn <- struct{}{}:
		defer s.yield()
	default:
		return
	}
	lease := s.locker.config.lease
	s.mu.Lock()
	idle := !s.over && s.broken == nil && s.working == 0
	deadline := s.heardOf.Add(lease - margin(lease))
	s.mu.Unlock()
	if !idle {
		return
	}
	sent := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	err := s.inner.Ping(ctx)

	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && ctx.Err() != nil:
		s.gone(fmt.Errorf("the server did not answer a heartbeat in time, and by its lease of %v may have ended the session: %w", lease, err))
	case err != nil:
		s.gone(fmt.Errorf("a heartbeat failed: %w", err))
	case !s.over:
		s.heardOf = sent
		s.beat.Reset(lease / beats)
	}
}

// gone declares an open session lost, and says so in the log: no caller may be there to be told. It is called with mu held.
func (s *session[Tx]) gone(reason error) {
	if s.over || s.broken != nil {
		return
	}
	s.lose(reason)
	go s.locker.config.logger.Warn("txlock: lost a lock", "lock", s.name, "error", s.broken) // not under mu: it is the caller's code
}
