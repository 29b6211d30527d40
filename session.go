package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/heartbeat"
	"github.com/txlock/txlock/internal/peer"
)

// session is a pinned connection with the transaction that holds rows.
//
// One that a Lock began runs no work, is kept alive by pings, and ends with ROLLBACK when the last
// Lock in it is unlocked, in whichever order they go. One that a Do began ends when that Do
// returns. The rows stay locked until then: the database cannot release one of them alone.
type session[Tx any] struct {
	locker *Locker[Tx]
	name   fmt.Stringer // of what it locked first, for the log
	inner  dialects.Session[Tx]
	place  *place
	do     context.Context  // of the Do that began it; nil: a Lock did
	last   []dialects.Query // run with COMMIT

	first locked    // what it was begun for
	since time.Time // it has that
	later []locked  // guarded by calls

	calls     chan struct{} // full while a call, a ping or the end uses the connection
	heartbeat *heartbeat.Heartbeat
	life      context.Context // ends when the session is lost or its end begins, with that cause
	stop      context.CancelCauseFunc
	ended     chan struct{} // closed when the connection was given back

	mu    sync.Mutex
	depth int          // Locks that hold it, or the Do; 0: its end has begun
	lost  error        // why it is lost; nil: it is not
	works []*ownership // that run
}

// grant is a session that holds the rows of a Mutex.
type grant[Tx any] struct {
	*session[Tx]
	dialects.Grant
	calls  chan struct{} // see ownership
	permit int           // of a semaphore
}

// whenReleased calls do when the session has ended.
func (g grant[Tx]) whenReleased(do func()) {
	go func() {
		<-g.ended
		do()
	}()
}

// acquire locks the rows of m: in the session of a Lock that ctx carries, or for a Lock in the work
// of a Do in its session, else in a new one. Wait is ctx, or one that also ends the wait.
func (m *Mutex[Tx]) acquire(ctx, wait context.Context, try, work bool) (g grant[Tx], err error) {
	if m.untilClose {
		once := *m
		once.untilClose = false
		err = m.locker.untilClose(wait, func(wait context.Context) (err error) {
			g, err = once.acquire(ctx, wait, try, work)
			return err
		})
		return g, err
	}
	wait, cancel, err := m.limitWait(wait)
	if err != nil {
		return g, err
	}
	defer cancel()
	if m.permit != nil {
		g, err = m.permit.acquire(m, ctx, wait, try, work)
		return g, m.waitError(ctx, wait, err)
	}
	return m.acquireRows(ctx, wait, try, work)
}

// acquireRows is acquire, with a bounded wait.
func (m *Mutex[Tx]) acquireRows(ctx, wait context.Context, try, work bool) (g grant[Tx], err error) {
	if s, of := m.locker.carried(ctx); s != nil && s.enter() {
		return m.join(ctx, wait, s, of, try)
	}
	request, err := m.sessionRequest(wait, try, work, false)
	if err == nil {
		g, err = m.queueAndBegin(ctx, wait, request)
	}
	if err != nil {
		m.locker.invalidate(err)
		err = m.locker.heldHere(request, wait, m.waitError(ctx, wait, err))
	}
	return g, err
}

// sessionRequest is request for a session. The table of tokens is found for work, too: a lock in it
// will ask for one, and then has a connection already.
func (m *Mutex[Tx]) sessionRequest(ctx context.Context, try, work, connected bool) (dialects.Request, error) {
	request, err := m.request(ctx, try, connected)
	request.Lease = m.locker.config.lease
	switch {
	case !work:
	case m.statements != nil:
		request.Work = m.statements
	case m.attached != nil && !connected:
		request.Work = &dialects.Work{Look: &m.attached.look}
	default:
		request.Work = &anyWork
	}
	if err != nil || !m.locker.config.fencing || request.Fence != "" {
		return request, err
	}
	found, err := m.locker.find(ctx, connected)
	if err == nil && !work {
		request.Fence = found.Name
	}
	return request, err
}

// anyWork sends what it likes.
var anyWork dialects.Work

// begin locks the rows of request in a new session, which uses the place. name is for the log.
func (l *Locker[Tx]) begin(ctx, wait context.Context, name fmt.Stringer, request dialects.Request, place *place) (
	g grant[Tx], err error,
) {
	defer func() {
		if g.session == nil { // also when the client library panicked
			place.Leave()
		}
	}()
	asked := time.Now()
	inner, got, err := l.driver.Begin(wait, request)
	if err != nil {
		return g, err
	}
	place.Granted()
	if inner == nil { // the statements were run, and committed
		return grant[Tx]{Grant: got}, nil
	}
	s := &session[Tx]{
		locker: l, name: name, inner: inner, place: place, since: time.Now(),
		calls: make(chan struct{}, 1), ended: make(chan struct{}), depth: 1,
		first: locked{request, got, false},
	}
	s.life, s.stop = context.WithCancelCause(context.Background())
	s.heartbeat = &heartbeat.Heartbeat{
		Lease: l.config.lease, Wire: peer.Conn{Conn: inner.Socket()}, Ping: inner.Ping, Life: s.life, Calls: s.calls,
		Lose: s.lose,
	}
	if request.Work != nil {
		s.do, s.heartbeat.Ping = ctx, nil
	}
	s.heartbeat.Begin(asked)
	g = grant[Tx]{session: s, calls: s.calls, Grant: got}
	l.sessions.Add(s, s.heartbeat)
	// Close ends the sessions that it finds behind the end of closing.
	if err = cmp.Or(context.Cause(l.closing), ctx.Err()); err != nil {
		// The grant won the race against the end of ctx, whose owner has stopped waiting, or
		// against Close.
		_ = s.finish(ctx, false)
	}
	return g, err
}

// lose declares an open session lost, and says so in the log: no caller may be there to be told.
func (s *session[Tx]) lose(reason error) bool {
	reason = s.asLoss(reason)
	if !s.markLost(reason) {
		return false
	}
	s.place.Leave() // the server has released the lock, or soon will
	// It is the caller's code, and must hold up nobody here.
	go s.log(context.Background(), "txlock: lost a lock", reason, reason)
	return true
}

// markLost ends the life of an open session, once.
func (s *session[Tx]) markLost(reason error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.depth == 0 || s.lost != nil {
		return false
	}
	s.lost = reason
	s.endLife(reason)
	return true
}

// endLife ends the contexts of all owners, with the mutex held.
func (s *session[Tx]) endLife(cause error) {
	s.stop(cause)
	for _, work := range s.works {
		work.stop(cause)
	}
}

// asLoss is what the end of its connection is for the session: ErrLost, unless the context of its
// Do has ended. Then its caller has given up, and does not believe to have the lock. With that
// context the client library closes the connection under a statement of the work.
func (s *session[Tx]) asLoss(reason error) error {
	if s.do != nil && s.do.Err() != nil {
		return fmt.Errorf("the session has ended with its context: %w (%v)", s.do.Err(), reason)
	}
	return dialects.Lost(reason)
}

// told is the error of a statement in the session, which the caller may be the first to notice a
// loss by.
func (s *session[Tx]) told(err error) error {
	if !errors.Is(err, ErrLost) {
		return err
	}
	s.lose(err)
	return s.asLoss(err)
}

// log warns, unless it is no loss, which nobody needs to look at.
func (s *session[Tx]) log(ctx context.Context, text string, loss, err error) {
	level := slog.LevelWarn
	if !errors.Is(loss, ErrLost) {
		level, text = slog.LevelDebug, "txlock: a session has ended with the context of its Do"
	}
	s.locker.config.logger.Log(ctx, level, text, "lock", s.name.String(), "error", err)
}

// errOutlived is why the context of a Lock ends that was taken in a Do and not unlocked in it.
var errOutlived = fmt.Errorf("%w: the Do in which the lock was taken has returned", ErrNotHeld)

// errUnderWay is why a session is ended with its connection.
var errUnderWay = errors.New("a call that is under way in the session did not end")

// finish ends the session, whoever holds it.
func (s *session[Tx]) finish(ctx context.Context, commit bool) error {
	s.mu.Lock()
	open := s.depth > 0
	s.depth = 0
	s.mu.Unlock()
	if !open { // Close has ended it
		return s.lost
	}
	return s.end(ctx, commit)
}

// abort is Close's end of the session, whose contexts end with that cause. The Do that runs in a
// session returns then, and ends it.
func (s *session[Tx]) abort() {
	s.markLost(dialects.Lost(ErrClosed))
	if s.do == nil {
		_ = s.finish(context.Background(), false)
	}
}

// end ends the transaction and gives the connection back. It is called once, by who has set the
// depth to 0: leave or finish.
func (s *session[Tx]) end(ctx context.Context, commit bool) error {
	over := context.Canceled
	if s.do != nil {
		over = errOutlived
	}
	s.mu.Lock()
	s.endLife(over)
	s.mu.Unlock()
	s.heartbeat.Stop()
	loss, timeout := s.lost, dialects.ReleaseTimeout
	if commit = commit && loss == nil; commit {
		timeout = dialects.CommitTimeout
	}
	by := time.Now().Add(timeout)

	// A call may still be under way in the session: one that came with the context of a Do that has
	// returned, or a ping that is not answered. The life of the session is over, so the call soon
	// gives the connection back, unless it went on without its cancellation.
	if !take(s.calls, timeout) {
		s.heartbeat.Cut() // so that the server lets go at once, and what waits for its answer ends
		s.place.Leave()
		go func() {
			defer s.unregister()
			s.calls <- struct{}{} // the call has the connection, however long it takes
			_ = s.inner.End(ctx, time.Now().Add(dialects.ReleaseTimeout), false)
		}()
		return s.unconfirmed(ctx, loss, errUnderWay)
	}
	defer s.unregister()
	err := s.inner.End(ctx, by, commit, s.last...)
	switch {
	case commit:
		return final(err)
	case err != nil:
		return s.unconfirmed(ctx, loss, err)
	}
	return loss
}

// take takes a connection for good, unless a call has it for that long.
func take(calls chan struct{}, patience time.Duration) bool {
	select {
	case calls <- struct{}{}:
		return true
	default:
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case calls <- struct{}{}:
		return true
	case <-late.C:
		return false
	}
}

// unconfirmed is the loss of a session whose release was not confirmed. It says so in the log, at
// which the caller may not look, unless the log has the loss already.
func (s *session[Tx]) unconfirmed(ctx context.Context, loss, err error) error {
	unconfirmed := s.asLoss(err)
	if loss == nil || errors.Is(loss, ErrClosed) {
		s.log(ctx, "txlock: closed a connection, because the release of its lock was not confirmed", unconfirmed, err)
	}
	return cmp.Or(loss, unconfirmed)
}

// unregister takes the session off the Locker's list: its connection was given back.
func (s *session[Tx]) unregister() {
	s.locker.sessions.Remove(s)
	s.place.Leave()
	close(s.ended)
}
