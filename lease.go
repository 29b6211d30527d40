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
// work runs, which may have left rows of a query open. One timer serves all sessions of a Locker, so that a lock that is held
// briefly costs nothing for it, and only a heartbeat that is under way has a goroutine.
type vigil struct {
	unwatch func()
	// heardOf is the moment behind which the server's timer has begun at the latest: when the last answered heartbeat was
	// sent, or when a statement that may have waited long was answered. Go's clock is monotonic here. Guarded by mu.
	heardOf time.Time
}

// beatsPerLease is how often a Locker looks after its sessions: a heartbeat follows the last sign of life after a
// twelfth of the lease to a sixth. More would shorten the hiccup that may come between two of them only a little.
const beatsPerLease = 12

// margin is how much earlier than the server the owner gives up: for timers that fire late, and clocks that differ in pace.
func margin(lease time.Duration) time.Duration { return min(lease/10, time.Second) }

// watch begins the vigil, before the session is shared.
func (s *session[Tx]) watch() {
	s.heardOf = time.Now()
	s.unwatch = peer.Watch(s.inner.Socket(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gone(errors.New("the server closed the connection"))
	})
}

// heard says that the server has answered just now. It is called with mu held.
func (s *session[Tx]) heard() { s.heardOf = time.Now() }

// wake has the Locker look after its sessions. It is called with the Locker's mu held, when a session was opened.
func (l *Locker[Tx]) wake() {
	if l.beating {
		return
	}
	l.beating = true
	every := l.config.lease / beatsPerLease
	if l.beat == nil {
		l.beat = time.AfterFunc(every, l.lookAfter)
		return
	}
	l.beat.Reset(every)
}

// lookAfter sends the heartbeats that are due, and comes again as long as there are sessions.
func (l *Locker[Tx]) lookAfter() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.beating = len(l.sessions) > 0; !l.beating {
		return
	}
	l.beat.Reset(l.config.lease / beatsPerLease)
	for s := range l.sessions {
		go s.keep()
	}
}

// keep sends a heartbeat, unless there was a sign of life just now, and waits for the answer as long as the lease allows: a
// hiccup that is shorter does no harm.
func (s *session[Tx]) keep() {
	select {
	case s.turn <- struct{}{}:
		defer s.yield()
	default: // somebody else sends on the connection
		return
	}
	lease := s.locker.config.lease
	s.mu.Lock()
	due := !s.over && s.broken == nil && s.working == 0 && time.Since(s.heardOf) >= lease/beatsPerLease
	deadline := s.heardOf.Add(lease - margin(lease))
	s.mu.Unlock()
	if !due {
		return
	}
	sent := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	err := s.inner.Ping(ctx)

	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.heardOf = sent
	case ctx.Err() != nil:
		s.gone(fmt.Errorf("the server did not answer a heartbeat in time, and by its lease of %v may have ended the session: %w", lease, err))
	default:
		s.gone(fmt.Errorf("a heartbeat failed: %w", err))
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
