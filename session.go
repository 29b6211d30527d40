package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/heartbeat"
	"github.com/txlock/txlock/internal/peer"
	"github.com/txlock/txlock/internal/queue"
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
	first  [1]locked        // what it was begun for
	since  time.Time        // it has that
	// held is that, behind what it has locked later; guarded by calls. In the session of a Do it is
	// that alone: a savepoint that is rolled back, of ours or of the work's own, may take away what
	// comes later.
	held []locked

	calls     chan struct{} // full while a call, a ping or the end uses the connection
	heartbeat *heartbeat.Heartbeat
	life      context.Context // ends with its loss, as that, or when its end begins
	stop      context.CancelCauseFunc
	ended     chan struct{} // closed when the connection was given back
	depth     atomic.Int64  // Locks that hold it, or the Do; not positive: its end has begun
	mu        sync.Mutex    // held for whatever ends the life
	works     []*ownership  // that run
}

// grant is a session that holds the rows of a Mutex.
type grant[Tx any] struct {
	*session[Tx]
	dialects.Grant
	calls  chan struct{} // see ownership
	permit int           // of a semaphore
}

type (
	lines = queue.Lines[lineName]
	place = queue.Place[lineName]
)

// lineName names a set of rows, by their values with NUL between them. Sets of binary values that
// have one themselves may share a line: they wait longer, and nothing else.
type lineName struct{ table, column, values string }

// ownership is what a context carries of a session. Nothing else makes a caller its owner.
type ownership struct {
	session any                     // *session[Tx]
	calls   chan struct{}           // of the session, or of the work of a nested Do
	outer   *ownership              // of the context that this one was derived from
	work    context.Context         // ends with work; nil: it is that of a Lock
	stop    context.CancelCauseFunc // ends that
}

type ownershipKey struct{}

func ownershipIn(ctx context.Context) *ownership {
	owned, _ := ctx.Value(ownershipKey{}).(*ownership)
	return owned
}

// carried returns the open session of l that ctx carries, and how ctx owns it, or nil. A context
// that has outlived its session is nobody's.
func (l *Locker[Tx]) carried(ctx context.Context) (*session[Tx], *ownership) {
	for owned := ownershipIn(ctx); owned != nil; owned = owned.outer {
		if s, ok := owned.session.(*session[Tx]); ok && s.locker == l && s.depth.Load() > 0 {
			return s, owned
		}
	}
	return nil, nil
}

// acquire locks the rows of m: in the session of a Lock that ctx carries, or for a Lock in the work
// of a Do in its session, else in a new one. Work is what comes behind; nil: a Lock.
func (m *Mutex[Tx]) acquire(ctx context.Context, try bool, work *dialects.Work) (g grant[Tx], err error) {
	wait, cancel, err := m.limitWait(ctx)
	if err != nil {
		return g, err
	}
	defer cancel()
	if m.permit != nil {
		g, err = m.permit.acquire(m, ctx, wait, try, work)
		return g, m.waitError(wait, err)
	}
	if s, of := m.locker.carried(ctx); s != nil && s.enter() {
		return m.join(wait, s, of, try)
	}
	return m.begin(ctx, wait, try, work)
}

// begin waits in line in the process, and then locks the rows in a new session. Who shares, or
// tries for a permit or any free row, does not wait in the process.
func (m *Mutex[Tx]) begin(ctx, wait context.Context, try bool, work *dialects.Work) (g grant[Tx], err error) {
	var request dialects.Request
	var p *place
	defer func() {
		if g.session == nil { // also when the client library panicked
			p.GoOn(queue.Left)
		}
		if err != nil {
			err = m.nameHolder(request, wait, err)
		}
	}()
	if request, err = m.request(wait, try, false, work); err != nil {
		return g, err
	}
	l := m.locker
	if !request.Shared && m.permit == nil && m.free == nil {
		line := lineName{request.Table, request.Column, request.Values[0].Text}
		for _, value := range request.Values[1:] {
			line.values += "\x00" + value.Text
		}
		if p = l.lines().Enter(line, try); p == nil {
			return g, fmt.Errorf("%w: other callers of this process hold it or wait for it", ErrNotAcquired)
		}
		if p.Crowded && !try {
			defer m.warnOfOwn(request).Stop()
			if err = l.awaitPlace(ctx, wait, p); err != nil {
				return g, err
			}
		}
		if try || work.IsExec() {
			p.GoOn(queue.Granted)
		}
	}
	asked := time.Now()
	inner, got, err := l.driver.Begin(wait, request)
	if err != nil {
		return g, err
	}
	p.GoOn(queue.Granted)
	if inner == nil { // the statements were run, and committed
		return grant[Tx]{Grant: got}, nil
	}
	s := &session[Tx]{
		locker: l, name: &m.target, inner: inner, place: p, since: time.Now(),
		calls: make(chan struct{}, 1), ended: make(chan struct{}), first: [1]locked{{request, got}},
	}
	s.held = s.first[:]
	s.depth.Store(1)
	s.life, s.stop = context.WithCancelCause(context.Background())
	s.heartbeat = &heartbeat.Heartbeat{
		Lease: l.config.lease, Wire: peer.Conn{Conn: inner.Socket()}, Ping: inner.Ping, Life: s.life, Calls: s.calls,
		Lose: s.lose,
	}
	if work != nil {
		s.do, s.heartbeat.Ping = ctx, nil
	}
	s.heartbeat.Heard(asked)
	g = grant[Tx]{session: s, calls: s.calls, Grant: got}
	l.mu.Lock()
	if l.open[s] = true; !l.timed {
		l.timed = true
		time.AfterFunc(heartbeat.Beat(l.config.lease), l.lookAfter)
	}
	if l.unwatched = append(l.unwatched, s.heartbeat); len(l.unwatched) == 1 {
		time.AfterFunc(heartbeat.Early, l.watch)
	}
	l.mu.Unlock()
	// Close ends the sessions that it finds behind the end of closing. A grant behind the end of
	// the wait may be old: an interrupt that was under way was waited for.
	if err = cmp.Or(context.Cause(l.closing), wait.Err()); err != nil {
		_ = s.finish(ctx, false)
	}
	return g, err
}

// lose declares an open session lost, and says so in the log: no caller may be there to be told.
func (s *session[Tx]) lose(reason error) bool {
	reason = s.asLoss(reason)
	if !s.endLife(reason) {
		return false
	}
	s.place.GoOn(queue.Left)                       // the server has released the lock, or soon will
	go s.log(context.Background(), reason, reason) // the caller's code, which must hold up nobody
	return true
}

// endLife ends the life of an open session, once, and the contexts of all owners before it returns:
// who has told of a loss finds them ended.
func (s *session[Tx]) endLife(cause error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return false
	}
	s.stop(cause)
	for _, work := range s.works {
		work.stop(cause)
	}
	return true
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

// noticed is the error of a statement in the session, by which a loss may be noticed first.
func (s *session[Tx]) noticed(err error) error {
	if !errors.Is(err, ErrLost) {
		return err
	}
	s.lose(err)
	return s.asLoss(err)
}

// log warns of a loss. The end of a session with the context of its Do is none.
func (s *session[Tx]) log(ctx context.Context, loss, err error) {
	if errors.Is(loss, ErrLost) {
		s.locker.config.logger.WarnContext(ctx, "txlock: lost a lock", "lock", s.name.String(), "error", err)
	}
}

// errOutlived is why the context of a Lock ends that was taken in a Do and not unlocked in it.
var errOutlived = fmt.Errorf("%w: the Do in which the lock was taken has returned", ErrNotHeld)

// errUnderWay is why a session is ended with its connection.
var errUnderWay = errors.New("a call that is under way in the session did not end")

// leave undoes enter. The last one ends the session; that of a Do ends with the Do. The error is
// why the caller has held nothing any more.
func (s *session[Tx]) leave(ctx context.Context) error {
	if s.do == nil && s.depth.Add(-1) == 0 {
		return s.end(ctx, false)
	}
	return context.Cause(s.life)
}

// finish ends the session, whoever holds it, unless Close has ended it.
func (s *session[Tx]) finish(ctx context.Context, commit bool) error {
	if s.depth.Swap(0) > 0 {
		return s.end(ctx, commit)
	}
	return context.Cause(s.life)
}

// end ends the transaction and gives the connection back. It is called once, by who has brought the
// depth to 0.
func (s *session[Tx]) end(ctx context.Context, commit bool) (loss error) {
	over, timeout := context.Canceled, dialects.ReleaseTimeout
	if s.do != nil {
		over = errOutlived
	}
	if !s.endLife(over) {
		loss = context.Cause(s.life)
	}
	s.heartbeat.Stop()
	if commit = commit && loss == nil; commit {
		timeout = dialects.CommitTimeout
	}
	by := time.Now().Add(timeout)

	// A call may still be under way in the session: one that came with the context of a Do that has
	// returned, or a ping that is not answered. The life of the session is over, so the call soon
	// gives the connection back, unless it went on without its cancellation.
	err := errUnderWay
	if take(s.calls, timeout) {
		defer s.unregister()
		if err = s.inner.End(ctx, by, commit, s.last...); err == nil {
			return loss
		} else if commit {
			s.log(ctx, err, err)
			return final(err)
		}
	} else {
		s.heartbeat.Cut() // so that the server lets go at once, and what waits for its answer ends
		s.place.GoOn(queue.Left)
		go func() {
			defer s.unregister()
			s.calls <- struct{}{} // the call has the connection, however long it takes
			_ = s.inner.End(ctx, time.Now().Add(dialects.ReleaseTimeout), false)
		}()
	}
	// The caller may not look at the error. The log has a loss already, unless Close is its reason.
	unconfirmed := s.asLoss(err)
	if loss == nil || errors.Is(loss, ErrClosed) {
		s.log(ctx, unconfirmed, err)
	}
	return cmp.Or(loss, unconfirmed)
}

// take takes a connection for good, unless a call has it for that long.
func take(calls chan struct{}, longest time.Duration) bool {
	select {
	case calls <- struct{}{}:
		return true
	default: // most often it is free, and needs no timer
	}
	select {
	case calls <- struct{}{}:
		return true
	case <-time.After(longest):
		return false
	}
}

// unregister takes the session off the Locker's list: its connection was given back.
func (s *session[Tx]) unregister() {
	s.locker.mu.Lock()
	delete(s.locker.open, s)
	s.locker.mu.Unlock()
	s.place.GoOn(queue.Left)
	if permit := s.first[0].AnyOne; permit != "" {
		s.locker.free(permit)
	}
	close(s.ended)
}
