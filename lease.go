package txlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/txlock/txlock/internal/peer"
)

// vigil is how a session learns that it is lost, without a call of its owner's.
//
//   - When the server ends the session, its kernel closes the connection, and ours reports that at
//     once. One watcher serves all sessions of the process.
//   - When the network goes silent nothing is reported. The server ends the session by its own
//     timer, when no statement has come for the lease. A heartbeat keeps that timer from running
//     out, and its missing answer tells the owner, before the server can have given the lock to
//     another.
//
// A heartbeat is a statement. It is sent only when nobody else sends on the connection: with the
// turn held, and not while work runs, which may have left rows of a query open. In that time the
// kernels ask each other instead. One timer serves all sessions of a Locker, so that a lock that is
// held briefly costs nothing for it, and only a heartbeat that is under way has a goroutine.
type vigil struct {
	socket  net.Conn // nil when it cannot be seen
	unwatch func()
	// heardOf is the moment behind which the server's timer has begun: when the last statement was
	// sent that the server has answered at once, or a little before the answer came of one that may
	// have waited. Go's clock is monotonic here, but stands still while the machine sleeps. Guarded
	// by mu.
	heardOf time.Time
	probes  int    // how many want the kernels to ask each other; guarded by mu
	restore func() // ends that; nil as long as it has not begun; guarded by mu
	mute    bool   // the server is not heard; guarded by mu
	// ends the heartbeat that is under way, by closing the connection; nil without one; guarded by
	// mu
	beating context.CancelFunc
}

// beatsPerLease is how often a Locker looks after its sessions: a heartbeat follows the last sign
// of life after a twelfth of the lease to a sixth. More would shorten the hiccup that may come
// between two of them only a little.
const beatsPerLease = 12

// margin is how much earlier than the server the owner gives up: for timers that fire late, and
// clocks that differ in pace.
func margin(lease time.Duration) time.Duration { return min(lease/10, time.Second) }

// watch begins the vigil, before the session is shared. Asked is when the lock was asked for.
func (s *session[Tx]) watch(asked time.Time) {
	s.socket = s.inner.Socket()
	s.heard(asked)
	s.unwatch = peer.Watch(s.socket, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gone(errors.New("the server closed the connection"))
	})
}

// heard says that the server has just answered what it was asked then. When it answered late, it
// has waited for a lock, or run what work sent, and its timer began when it sent the answer, which
// may have been under way for a while: hence the allowance, by which a heartbeat is due at the next
// look. It is called with mu held.
func (s *session[Tx]) heard(asked time.Time) {
	lease := s.locker.config.lease
	if now := time.Now(); now.Sub(asked) >= margin(lease) {
		asked = now.Add(-lease / beatsPerLease)
	}
	s.heardOf = asked
}

// probe has the kernels ask each other until unprobe is called as often: while heartbeats cannot be
// sent. They begin when the Locker looks after its sessions the next time: what is over before that
// should not pay for a dozen system calls.
func (s *session[Tx]) probe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probes++
}

func (s *session[Tx]) unprobe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probes--; s.probes == 0 && s.restore != nil {
		s.restore()
		s.restore = nil
	}
}

// cut closes the connection under whoever uses it.
func (s *session[Tx]) cut() {
	if s.socket != nil {
		_ = s.socket.Close()
	}
}

// wake has the Locker look after its sessions. It is called with the Locker's mu held, when a
// session was opened.
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

// keep sends a heartbeat, unless there was a sign of life just now, and waits for the answer as
// long as the lease allows: a hiccup that is shorter does no harm. Where somebody else sends on the
// connection it asks the kernel.
func (s *session[Tx]) keep() {
	select {
	case s.root.turn <- struct{}{}:
		defer s.root.yield()
	default:
		s.listen()
		return
	}
	lease := s.locker.config.lease
	s.mu.Lock()
	working, due := s.working > 0, !s.over && s.broken == nil && time.Since(s.heardOf) >= lease/beatsPerLease
	giveUp := s.heardOf.Add(lease - margin(lease))
	// The client library closes the connection when ctx ends, so that the server lets go: the owner
	// is told a margin before.
	ctx, cancel := context.WithDeadline(context.Background(), s.heardOf.Add(lease))
	defer cancel()
	if due && !working {
		s.beating = cancel
	}
	s.mu.Unlock()
	switch {
	case working:
		s.listen()
		return
	case !due:
		return
	}
	sent := time.Now()
	late := time.AfterFunc(time.Until(giveUp), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.silent(fmt.Errorf("the server did not answer a heartbeat in time, and by its lease of %v will end the "+
			"session", lease))
	})
	err := s.inner.Ping(ctx)
	late.Stop()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.beating = nil
	if err == nil {
		s.heardOf = sent
	} else {
		s.gone(fmt.Errorf("a heartbeat failed: %w", err))
	}
}

// stopBeat ends a heartbeat that is under way, and the connection with it.
func (s *session[Tx]) stopBeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beating != nil {
		s.beating()
	}
}

// leastSilence is twice the shortest interval in which the kernels ask each other, and a little
// more.
const leastSilence = 2500 * time.Millisecond

// listen declares the session lost when its connection is closed, for somebody who used it found
// that it is dead, and when the server's kernel has not been heard of for so long that the server
// may have ended it before the next look. As long as peer.Probe has the kernels ask each other a
// connection that is merely unused is not silent. That begins here: silence from before says
// nothing, for this process may have been stopped.
func (s *session[Tx]) listen() {
	lease := s.locker.config.lease
	silence, known := peer.Silence(s.socket)
	dead := peer.Gone(s.socket)
	s.mu.Lock()
	defer s.mu.Unlock()
	began := s.probes > 0 && s.restore == nil
	if began {
		s.restore = peer.Probe(s.socket, lease)
	}
	if s.beating != nil { // which has a limit of its own
		return
	}
	if dead {
		s.gone(errors.New("the connection is closed"))
	}
	if began || !known || silence < max(lease-margin(lease)-lease/beatsPerLease, leastSilence) {
		return
	}
	s.silent(fmt.Errorf("nothing was heard of the server for %v, and by its lease of %v it will end the session",
		silence, lease))
}

// present is an error when the session is lost as far as can be seen from here: a call that finds
// all its rows held asks the server nothing, and this process may have been stopped, so that nobody
// has noticed yet.
func (s *session[Tx]) present() error {
	lease := s.locker.config.lease
	dead := peer.Gone(s.socket)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case dead:
		s.gone(errors.New("the connection is closed"))
	case s.working == 0 && time.Since(s.heardOf) >= lease-margin(lease):
		s.silent(fmt.Errorf("nothing was heard of the server for the lease of %v", lease))
	}
	return s.broken
}

// silent declares an open session lost of which the server is not heard, and closes its connection
// when the owner has had a margin to learn of that: nobody should wait for an answer, but the
// server may let go when it sees the close. It is called with mu held.
func (s *session[Tx]) silent(reason error) {
	if s.over || s.broken != nil {
		return
	}
	s.gone(reason)
	s.mute = true
	time.AfterFunc(margin(s.locker.config.lease), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.over { // else the connection may be another's
			s.cut()
		}
	})
}

// gone declares an open session lost, and says so in the log: no caller may be there to be told. It
// is called with mu held.
func (s *session[Tx]) gone(reason error) {
	if s.over || s.broken != nil {
		return
	}
	s.lose(reason)
	// not under mu: it is the caller's code
	go s.locker.config.logger.Warn("txlock: lost a lock", "lock", s.name, "error", s.broken)
}
