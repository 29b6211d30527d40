// Package heartbeat keeps sessions alive, and notices their loss.
package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Wire is what can be known of a connection, and done to it, without using it: see peer.Conn.
type Wire interface {
	Watch(gone func()) (stop func())
	Look() (gone bool, silence time.Duration)
	KeepAlive(silence time.Duration) (restore func())
	Close() error
}

// Heartbeat keeps a session alive, and learns that it is lost without a call of its owner's. When
// the server ends the session, its kernel closes the connection, and ours reports that at once.
// When the network goes silent, the server ends the session by its lease. A ping keeps that from
// running out; a missing answer tells the owner before the server can have given the lock to
// another. While a call uses the connection, and in a Do, the kernels ask each other instead.
type Heartbeat struct {
	Lease time.Duration
	Wire  Wire
	Ping  func(context.Context) error // nil in a Do, whose work may have left rows open
	Life  context.Context             // ends when the session is lost, and when its end begins
	Calls chan struct{}               // full while somebody uses the connection
	Lose  func(reason error) bool     // declares the loss, and tells whether it is the first

	queue sync.Mutex // held by the one look that waits for the connection

	mu      sync.Mutex
	unwatch func()             // nil: Watch was not called
	heard   time.Time          // the server's timer, which begins with its answer, began later
	pinged  time.Time          // when the last ping that was answered was sent, or the session began
	restore func()             // ends the kernels' probes; nil: they have not begun
	pinging context.CancelFunc // ends the ping under way, by closing the connection; nil: there is none
	givenUp bool               // the connection is no good, and nobody should wait for an answer
	stopped bool               // the connection may be another's
}

// BeatsPerLease is how often a session is looked after: a ping follows the last one after a twelfth
// of the lease to a sixth. More would hardly lengthen the hiccup that does no harm.
const BeatsPerLease = 12

// Beat is how long after a look at a session the next one comes. It is at most 10 s: with a
// heartbeat the driver also renews what is held for long.
func Beat(lease time.Duration) time.Duration { return min(lease/BeatsPerLease, 10*time.Second) }

// margin is how much earlier than the server the owner gives up: for timers that fire late, and
// clocks that differ in pace.
func margin(lease time.Duration) time.Duration { return min(lease/10, time.Second) }

// Early is how long after the first Heard to call Watch: a session that has ended by then is not
// watched, which would be a twentieth of what its lock costs.
const Early = 5 * time.Millisecond

// Watch begins to watch the connection. That it has ended before is noticed at once.
func (h *Heartbeat) Watch() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stopped {
		h.unwatch = h.Wire.Watch(func() { h.Lose(errors.New("the server closed the connection")) })
	}
}

// Heard says that the server has just answered what it was asked then, if only with an error. The
// answer is taken to have been under way for a twelfth of the lease at most. With the first answer
// the session has begun.
func (h *Heartbeat) Heard(asked time.Time) {
	earliest := time.Now().Add(-h.Lease / BeatsPerLease)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pinged.IsZero() {
		h.pinged = asked
	}
	if h.heard = asked; asked.Before(earliest) {
		h.heard = earliest
	}
}

// Look pings the server, if that is due, and waits for the answer as long as the lease allows: a
// shorter hiccup does no harm. Where somebody else uses the connection it asks the kernel, and
// queues if a ping is due, so that no row of calls keeps that away.
func (h *Heartbeat) Look() {
	if h.Ping == nil {
		h.askKernel()
		return
	}
	select {
	case h.Calls <- struct{}{}:
	default:
		h.askKernel()
		if !h.due() || !h.queue.TryLock() {
			return
		}
		defer h.queue.Unlock()
		select {
		case h.Calls <- struct{}{}:
		case <-h.Life.Done():
			return
		}
	}
	defer func() { <-h.Calls }()
	if h.Life.Err() == nil && h.due() {
		h.ping()
	}
}

// due tells whether to ping now. One ping at a time is under way.
func (h *Heartbeat) due() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pinging == nil && time.Since(h.pinged) >= Beat(h.Lease)
}

// ping is called by who has the connection, which the client library closes when ctx ends, so that
// the server lets go. The owner is told a margin before.
func (h *Heartbeat) ping() {
	h.mu.Lock()
	ctx, cancel := context.WithDeadline(context.Background(), h.heard.Add(h.Lease))
	defer cancel()
	late := time.AfterFunc(time.Until(h.heard.Add(h.Lease-margin(h.Lease))), func() {
		h.giveUp(fmt.Errorf("the network is silent: the server did not answer a heartbeat in time, and by its lease "+
			"of %v will end the session", h.Lease))
	})
	h.pinging = cancel
	h.mu.Unlock()

	sent := time.Now()
	err := h.Ping(ctx)
	late.Stop()

	h.mu.Lock()
	if h.pinging = nil; err == nil {
		h.heard, h.pinged = sent, sent
	}
	h.mu.Unlock()
	if err != nil {
		h.giveUp(fmt.Errorf("a heartbeat failed: %w", err))
	}
}

// leastSilence is a little more than twice the shortest interval of the kernels' probes.
const leastSilence = 2500 * time.Millisecond

// askKernel declares the session lost when its connection is dead, or when the server's kernel has
// been silent for so long that the server may end the session before the next look. The first look
// has the kernels ask each other, and judges no silence: this process may have been stopped.
func (h *Heartbeat) askKernel() {
	gone, silence := h.Wire.Look()
	h.mu.Lock()
	began := h.restore == nil && !h.stopped
	if began {
		h.restore = h.Wire.KeepAlive(h.Lease)
	}
	pinging := h.pinging != nil // which has a limit of its own
	h.mu.Unlock()
	switch {
	case pinging:
	case gone:
		h.Lose(errConnectionClosed)
	case !began && silence >= max(h.Lease-margin(h.Lease)-h.Lease/BeatsPerLease, leastSilence):
		h.giveUp(fmt.Errorf("the network is silent: nothing was heard of the server for %v, and by its lease of %v it "+
			"will end the session", silence, h.Lease))
	}
}

var errConnectionClosed = errors.New("the connection is closed")

// Check declares the session lost if that can be seen from here. It is for a call that asks the
// server nothing: this process may have been stopped, so that nobody has noticed yet.
func (h *Heartbeat) Check() {
	h.mu.Lock()
	overdue := h.Ping != nil && time.Since(h.heard) >= h.Lease-margin(h.Lease)
	h.mu.Unlock()
	if overdue {
		h.giveUp(fmt.Errorf("the network is silent: nothing was heard of the server for the lease of %v", h.Lease))
	} else if gone, _ := h.Wire.Look(); gone {
		h.Lose(errConnectionClosed)
	}
}

// giveUp declares the session lost, and closes its connection a margin later, so that the owner
// learns first: the server may let go when it sees the close.
func (h *Heartbeat) giveUp(reason error) {
	h.mu.Lock()
	h.givenUp = h.givenUp || h.Life.Err() == nil
	h.mu.Unlock()
	if !h.Lose(reason) {
		return
	}
	time.AfterFunc(margin(h.Lease), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.stopped {
			_ = h.Wire.Close()
		}
	})
}

// Stop ends the watch, before the connection is given back. One that was given up is closed, so
// that nobody waits for an answer on it.
func (h *Heartbeat) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped = true; h.unwatch != nil {
		h.unwatch()
	}
	if h.restore != nil {
		h.restore()
	}
	if h.givenUp {
		_ = h.Wire.Close()
	}
}

// Cut closes the connection, and ends a ping that is under way: a call does not return.
func (h *Heartbeat) Cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pinging != nil {
		h.pinging()
	}
	_ = h.Wire.Close()
}
