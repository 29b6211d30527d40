package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Wire is what can be known of a connection, and done to it, without using it.
type Wire interface {
	// Watch calls gone, in a goroutine of its own, when the peer closes the connection.
	Watch(gone func()) (stop func())
	// Gone tells whether the connection is dead.
	Gone() bool
	// Unread tells whether something has come that nobody has read.
	Unread() bool
	// Silence is how long ago the peer's kernel was last heard of; known is false when nobody can
	// say.
	Silence() (silence time.Duration, known bool)
	// KeepAlive has the kernels ask each other, until restore is called, and give the connection up
	// after silence.
	KeepAlive(silence time.Duration) (restore func())
	// Close closes the connection under whoever uses it.
	Close() error
}

// Heartbeat keeps a session alive, and learns that it is lost without a call of its owner's.
//
//   - When the server ends the session, its kernel closes the connection, and ours reports that at
//     once.
//   - When the network goes silent, nothing is reported. The server ends the session by its own
//     timer, the lease, when no statement has come for so long. A ping keeps that timer from
//     running out. A missing answer tells the owner, before the server can have given the lock to
//     another.
//
// A ping is a statement. It is sent only by whoever has the turn, and never in the session of a Do:
// its work may have left rows of a query open. Where no ping can be sent, the kernels ask each
// other instead. A ping that is due queues for its turn, so that no calls that come one after the
// other keep it away.
type Heartbeat struct {
	lease   time.Duration
	ping    func(context.Context) error // nil in the session of a Do
	wire    Wire
	turns   *Turns
	life    *Life
	lose    func(reason error) bool // as Life.Lose, and tells whom it concerns
	unwatch func()

	mu sync.Mutex
	// heard is the moment after which the server's timer has begun. The server starts it when it
	// answers, which is not before the statement was sent. Nobody knows when that was if the answer
	// was slow: then heard is a twelfth of the lease before it came, and the next ping is due. Go's
	// clock is monotonic here, but stands still while the machine sleeps.
	heard   time.Time
	pinged  time.Time          // when the last ping was answered, or the session began
	queued  bool               // a ping waits for its turn
	checked time.Time          // when Check has last found nothing
	busy    int                // statements under way, which keep pings from being sent
	restore func()             // ends the kernels' probes; nil: they have not begun
	pinging context.CancelFunc // ends the ping under way, by closing the connection; nil: there is none
	silent  bool               // nobody should wait for an answer
	stopped bool               // the connection may be another's
}

// BeatsPerLease is how often a session is looked after: a ping follows the last sign of life after
// a twelfth of the lease to a sixth. More would hardly lengthen the hiccup that does no harm.
const BeatsPerLease = 12

// Beat is how long after a look at a session the next one comes. It is a twelfth of the lease, and
// at most 10 s: with a heartbeat the driver also renews what is held for long.
func Beat(lease time.Duration) time.Duration { return min(lease/BeatsPerLease, 10*time.Second) }

// beatsPerPing is how many Beats pass at most from one ping to the next, also while others speak: a
// driver does more with a ping than to ask for an answer.
const beatsPerPing = 2

// margin is how much earlier than the server the owner gives up: for timers that fire late, and
// clocks that differ in pace.
func margin(lease time.Duration) time.Duration { return min(lease/10, time.Second) }

// NewHeartbeat begins to watch a session that was asked for at that time. ping is nil in the
// session of a Do. lose is called without a lock held.
func NewHeartbeat(lease time.Duration, wire Wire, ping func(context.Context) error, turns *Turns, life *Life,
	lose func(reason error) bool, asked time.Time,
) *Heartbeat {
	h := &Heartbeat{lease: lease, ping: ping, wire: wire, turns: turns, life: life, lose: lose, pinged: asked}
	h.Heard(asked)
	h.unwatch = wire.Watch(func() { lose(errors.New("the server closed the connection")) })
	return h
}

// Heard says that the server has just answered what it was asked then, if only with an error.
func (h *Heartbeat) Heard(asked time.Time) {
	if now := time.Now(); now.Sub(asked) >= margin(h.lease) {
		asked = now.Add(-h.lease / BeatsPerLease) // so that a ping is due at the next look
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard = asked
}

// Busy says that statements are under way until done is called, so that no ping can be sent. The
// kernels ask each other meanwhile, from the next look on: what is over before pays for no system
// calls.
func (h *Heartbeat) Busy() (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.busy--; h.busy == 0 && h.restore != nil {
			h.restore()
			h.restore = nil
		}
	}
}

// Look pings the server, unless there was a sign of life just now, and waits for the answer as long
// as the lease allows: a shorter hiccup does no harm. Where somebody else sends on the connection
// it asks the kernel, and waits for its turn if a ping is due. It is called a Beat after the last
// time.
func (h *Heartbeat) Look() {
	if h.ping == nil {
		h.askKernel()
		return
	}
	turn, ok := h.turns.Try()
	if !ok {
		h.askKernel()
		if turn = h.awaitTurn(); turn == nil {
			return
		}
	}
	defer turn.Give()
	if h.life.held() {
		h.pingIfDue()
	}
}

// pingIfDue is called with the turn taken.
func (h *Heartbeat) pingIfDue() {
	h.mu.Lock()
	if !h.due() {
		h.mu.Unlock()
		return
	}
	untilGiveUp := time.Until(h.heard.Add(h.lease - margin(h.lease)))
	// The client library closes the connection when ctx ends, so that the server lets go. The owner
	// is told a margin before.
	ctx, cancel := context.WithDeadline(context.Background(), h.heard.Add(h.lease))
	defer cancel()
	h.pinging = cancel
	h.mu.Unlock()

	sent := time.Now()
	late := time.AfterFunc(untilGiveUp, func() {
		h.fallSilent(fmt.Errorf("the server did not answer a heartbeat in time, and by its lease of %v will end "+
			"the session", h.lease))
	})
	err := h.ping(ctx)
	late.Stop()

	h.mu.Lock()
	h.pinging = nil
	if err == nil {
		h.heard, h.pinged = sent, sent
	}
	h.mu.Unlock()
	if err != nil {
		h.giveUp(fmt.Errorf("a heartbeat failed: %w", err))
	}
}

// due tells whether to ping now. It is called with the mutex held.
func (h *Heartbeat) due() bool {
	beat := Beat(h.lease)
	return time.Since(h.heard) >= beat || time.Since(h.pinged) >= beatsPerPing*beat
}

// awaitTurn waits for the turn of a ping that is due. It returns nil when none is, when one waits
// or is under way already, and when the session has ended.
func (h *Heartbeat) awaitTurn() *Turn {
	h.mu.Lock()
	if h.queued || h.pinging != nil || !h.due() {
		h.mu.Unlock()
		return nil
	}
	h.queued = true
	h.mu.Unlock()
	turn := h.turns.takeWhole()
	h.mu.Lock()
	h.queued = false
	h.mu.Unlock()
	return turn
}

// leastSilence is twice the shortest interval in which the kernels ask each other, and a little
// more.
const leastSilence = 2500 * time.Millisecond

// askKernel declares the session lost when its connection is dead, or when the server's kernel has
// been silent for so long that the server may end the session before the next look. A connection
// that is merely unused is not silent, because the kernels ask each other. The first look begins
// that, and judges nothing: silence from before may mean that this process was stopped.
func (h *Heartbeat) askKernel() {
	silence, known := h.wire.Silence()
	dead := h.wire.Gone()
	h.mu.Lock()
	began := h.busy > 0 && h.restore == nil
	if began {
		h.restore = h.wire.KeepAlive(h.lease)
	}
	pinging := h.pinging != nil // which has a limit of its own
	h.mu.Unlock()
	switch {
	case pinging:
	case dead:
		h.lose(errConnectionClosed)
	case began || !known || silence < max(h.lease-margin(h.lease)-h.lease/BeatsPerLease, leastSilence):
	default:
		h.fallSilent(fmt.Errorf("nothing was heard of the server for %v, and by its lease of %v it will end the "+
			"session", silence, h.lease))
	}
}

var errConnectionClosed = errors.New("the connection is closed")

// lookAgain is how soon after a Check another asks nothing. A session that passes quickly from hand
// to hand would else spend its time in system calls. The price is that a loss may go unseen for so
// much longer, which is less than the watch takes to report it.
const lookAgain = 100 * time.Microsecond

// Check declares the session lost if that can be seen from here. It is for a call that gives a
// session to somebody and asks the server nothing: this process may have been stopped, so that
// nobody has noticed yet. It returns false when the session is lost, or may be: something has come
// that nobody has asked for. The server's next answer tells.
func (h *Heartbeat) Check() (sound bool) {
	now := time.Now()
	h.mu.Lock()
	recent := now.Sub(h.checked) < lookAgain
	overdue := h.ping != nil && now.Sub(h.heard) >= h.lease-margin(h.lease)
	pinging := h.pinging != nil // who waits for the answer, and reads whatever comes
	h.mu.Unlock()
	switch {
	case overdue:
		h.fallSilent(fmt.Errorf("nothing was heard of the server for the lease of %v", h.lease))
	case recent:
		return true
	case h.wire.Gone():
		h.lose(errConnectionClosed)
	case pinging || !h.wire.Unread():
		h.mu.Lock()
		h.checked = now
		h.mu.Unlock()
		return true
	}
	return false
}

// fallSilent gives the session up, and nobody waits for an answer any more.
func (h *Heartbeat) fallSilent(reason error) {
	if h.life.held() {
		h.mu.Lock()
		h.silent = true
		h.mu.Unlock()
	}
	h.giveUp(fmt.Errorf("the network is silent: %w", reason))
}

// giveUp declares the session lost, and closes its connection a margin later, so that the owner
// learns first: the server may let go when it sees the close.
func (h *Heartbeat) giveUp(reason error) {
	if !h.lose(reason) {
		return
	}
	time.AfterFunc(margin(h.lease), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.stopped {
			_ = h.wire.Close()
		}
	})
}

// Stop ends the watch, before the connection is given back. A connection that has gone silent is
// closed, so that nobody waits for an answer on it.
func (h *Heartbeat) Stop() {
	h.unwatch()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	if h.silent {
		_ = h.wire.Close()
	}
}

// Cut closes the connection, and ends a ping that is under way: a call does not return.
func (h *Heartbeat) Cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pinging != nil {
		h.pinging()
	}
	_ = h.wire.Close()
}
