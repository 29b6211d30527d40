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
	"github.com/txlock/txlock/internal/lifecycle"
	"github.com/txlock/txlock/internal/peer"
)

const (
	// releaseTimeout bounds Unlock and every rollback. A connection that has not confirmed by then
	// is closed.
	releaseTimeout = 5 * time.Second
	// commitTimeout bounds COMMIT, which may rightly take long, on a synchronous standby say.
	commitTimeout = 30 * time.Second
)

// session is a pinned connection with the transaction that holds rows.
//
// A session that a Lock began runs no work, is kept alive by pings, and ends with ROLLBACK when its
// last handle is given back, in whichever order they go. One that a Do began ends when that Do
// returns. The rows stay locked until then: the database cannot release one of them alone.
//
// A session ends once: by leave (the last handle) or finish (whatever handles are left), and both
// go on to end, which gives the connection back.
type session[Tx any] struct {
	locker *Locker[Tx]
	name   fmt.Stringer // of what it locked first, for the log
	inner  dialects.Session[Tx]
	ctx    context.Context // of the Do that began it; nil: a Lock did
	place  *place
	last   []dialects.Query // run with COMMIT

	life      *lifecycle.Life
	turns     *lifecycle.Turns
	heartbeat *lifecycle.Heartbeat

	// first is what the session was begun for, and since when it has granted.
	first   dialects.Request
	granted dialects.Grant
	since   time.Time

	mu   sync.Mutex
	held map[row]heldLock // nil until somebody asks
}

// grant is a session that holds the rows of a Mutex, and the handle by which the caller holds it.
type grant[Tx any] struct {
	*session[Tx]
	dialects.Grant
	handle *lifecycle.Handle
	turn   *lifecycle.Turn // of a Do that joined its caller's session, for its savepoint; else nil
	permit int             // of a semaphore
}

// whenReleased calls do when the session has ended.
func (g grant[Tx]) whenReleased(do func()) {
	go func() {
		<-g.life.Ended()
		do()
	}()
}

// acquire locks the rows of m: in the session that ctx carries, if there is one, else in a new one.
// Wait is ctx, or one that also ends the wait.
func (m *Mutex[Tx]) acquire(ctx, wait context.Context, try, work bool) (g grant[Tx], err error) {
	wait, cancel, err := m.limitWait(wait)
	if err != nil {
		return g, err
	}
	defer cancel()
	if s, of := m.locker.carried(ctx); s != nil && work && s.ctx == nil && of.Open() {
		return g, ErrInsideLock
	}
	if p, ok := m.target.(*permit[Tx]); ok {
		g, err = p.acquire(m, ctx, wait, try, work)
		return g, m.waitError(ctx, wait, err)
	}
	return m.acquireRows(ctx, wait, try, work)
}

// acquireRows is acquire, with a bounded wait.
func (m *Mutex[Tx]) acquireRows(ctx, wait context.Context, try, work bool) (g grant[Tx], err error) {
	if s, of := m.locker.carried(ctx); s != nil {
		if handle := of.Enter(of.Scope()); handle != nil { // else it has ended, and ctx has outlived it
			return m.join(ctx, wait, grant[Tx]{session: s, handle: handle}, try, work)
		}
	}
	var request dialects.Request
	err = m.retryOutdated(func() error {
		if request, err = m.sessionRequest(wait, try, work, false); err == nil {
			if !try {
				defer m.locker.warnOfOwn(m.target, request)()
			}
			g, err = m.target.queueAndBegin(ctx, wait, m.target, request)
		}
		return err
	})
	return g, m.locker.heldHere(request, wait, m.waitError(ctx, wait, err))
}

// sessionRequest is request for a session. The table of tokens is found for work, too: a lock in it
// will ask for one, and then has a connection already.
func (m *Mutex[Tx]) sessionRequest(ctx context.Context, try, work, connected bool) (dialects.Request, error) {
	request, err := m.request(ctx, try, connected)
	request.Work, request.Lease = work, m.locker.config.lease
	if m.attached != nil && !connected {
		request.Look = &m.attached.look
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
	g, err = l.open(ctx, name, inner, request, got, asked, place)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		// The grant won the race against the end of ctx, whose owner has stopped waiting, or
		// against Close.
		_ = g.finish(ctx, false)
	}
	return g, err
}

// open makes a session of what the driver has begun. It returns one with an error when the Locker
// was closed meanwhile.
func (l *Locker[Tx]) open(ctx context.Context, name fmt.Stringer, inner dialects.Session[Tx],
	request dialects.Request, got dialects.Grant, asked time.Time, place *place,
) (grant[Tx], error) {
	s := &session[Tx]{
		locker: l, name: name, inner: inner, place: place, first: request, granted: got, since: time.Now(),
	}
	turns, whole := lifecycle.NewTurns()
	life, handle := lifecycle.NewLife(whole)
	s.turns, s.life = turns, life
	ping := inner.Ping
	if request.Work {
		s.ctx, ping = ctx, nil
	}
	s.heartbeat = lifecycle.NewHeartbeat(l.config.lease, peer.Conn{Conn: inner.Socket()}, ping, turns, life, s.lose,
		asked)
	g := grant[Tx]{session: s, handle: handle, Grant: got}
	if !l.sessions.Add(s) {
		return g, ErrClosed
	}
	return g, nil
}

// Look is that of the heartbeat.
func (s *session[Tx]) Look() { s.heartbeat.Look() }

// lose declares an open session lost, and says so in the log: no caller may be there to be told.
func (s *session[Tx]) lose(reason error) bool {
	reason = s.asLoss(reason)
	if !s.life.Lose(reason) {
		return false
	}
	s.place.Leave() // the server has released the lock, or soon will
	// It is the caller's code, and must hold up nobody here.
	go s.log(context.Background(), "txlock: lost a lock", reason, reason)
	return true
}

// asLoss is what the end of its connection is for the session: ErrLost, unless the context of its
// Do has ended. Then its caller has given up, and does not believe to have the lock. With that
// context the client library closes the connection under a statement of the work.
func (s *session[Tx]) asLoss(reason error) error {
	if s.ctx != nil && s.ctx.Err() != nil {
		return fmt.Errorf("the session has ended with its context: %w (%v)", s.ctx.Err(), reason)
	}
	return asLost(reason)
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

// leave gives a handle back. The last one ends the session.
func (s *session[Tx]) leave(ctx context.Context, handle *lifecycle.Handle) error {
	last, err := handle.Leave()
	if last {
		return s.end(ctx, false)
	}
	return err
}

// finish ends the session, whatever handles are left.
func (s *session[Tx]) finish(ctx context.Context, commit bool) error {
	if !s.life.BeginEnd(errOutlived) { // Close has ended it
		return s.life.Lost()
	}
	return s.end(ctx, commit)
}

// errOutlived is why the context of a Lock ends that was taken in a Do and not unlocked in it.
var errOutlived = fmt.Errorf("%w: the Do in which the lock was taken has returned", ErrNotHeld)

// errUnderWay is why a session is ended with its connection.
var errUnderWay = errors.New("a call that is under way in the session did not end")

// abort is Close's end of the session, whose contexts end with that cause. The Do that runs in a
// session returns then, and ends it.
func (s *session[Tx]) abort() {
	s.life.Lose(asLost(ErrClosed))
	if s.ctx == nil {
		_ = s.finish(context.Background(), false)
	}
}

// end ends the transaction and gives the connection back. It is called once, by whoever has begun
// the end of the session's life: leave, finish.
func (s *session[Tx]) end(ctx context.Context, commit bool) error {
	s.heartbeat.Stop()
	loss, timeout := s.life.Lost(), releaseTimeout
	if commit = commit && loss == nil; commit {
		timeout = commitTimeout
	}
	by := time.Now().Add(timeout)

	// A call may still be under way in the session: one that came with the context of a Do that has
	// returned, or a ping that is not answered. The context of that Do has ended, so the call soon
	// gives its turn back, unless it went on without its cancellation. The connection is the call's
	// until then.
	if !s.turns.Close(timeout) {
		s.heartbeat.Cut() // so that the server lets go at once, and what waits for its answer ends
		s.place.Leave()
		go func() {
			defer s.unregister()
			for !s.turns.Close(releaseTimeout) { // the call has the connection, however long it takes
			}
			_ = s.inner.Rollback(ctx, time.Now().Add(releaseTimeout))
		}()
		return s.unconfirmed(ctx, loss, errUnderWay)
	}
	defer s.unregister()
	if commit {
		return final(s.inner.Commit(ctx, by, s.last...))
	}
	if err := s.inner.Rollback(ctx, by); err != nil {
		return s.unconfirmed(ctx, loss, err)
	}
	return loss
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
	s.life.MarkEnded()
}
