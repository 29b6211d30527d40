package txlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/txlock/txlock/dialects"
)

// session is a database session that holds rows, shared by the handles that joined it: the Lock or
// Do that began it, and what was called with its context since.
//
// A context carries the session; nothing else makes a caller its owner. handles is the depth of
// reentry: the session ends when it falls to 0, in whichever order the handles go, or when the Do
// that began it returns. The rows stay locked until then, because the database cannot release one
// of them alone.
type session[Tx any] struct {
	locker *Locker[Tx]
	name   string // of what it locked first, for the log
	inner  dialects.Session[Tx]

	root  *frame[Tx]
	vigil // while it is open

	mu sync.Mutex
	// held are the rows that stay locked until the session ends, and the token that each was locked
	// with, 0 without. What was locked while work runs is not among them: when a savepoint is
	// rolled back, of ours or of the work's own, PostgreSQL releases what was locked since. So it
	// is locked anew each time.
	held    map[row]int64
	handles int
	working int                                     // Dos that run in it; the session, and the connection, is theirs
	worked  bool                                    // a Do succeeded in it: it ends with COMMIT
	over    bool                                    // it ended, or is ending
	aborted bool                                    // Close wants it ended
	broken  error                                   // why it is lost; the work is then not committed
	cancels map[*context.CancelCauseFunc]*frame[Tx] // of the contexts that carry ownership, and where each was taken

	ended chan struct{} // closed when the connection has been given back
}

// row is what a session holds.
type row struct{ table, column, value string }

// ownerKey is the context key of the session that a Locker's caller holds.
type ownerKey[Tx any] struct{ locker *Locker[Tx] }

func (l *Locker[Tx]) open(name string, inner dialects.Session[Tx], request dialects.Request, token int64,
	asked time.Time,
) (*session[Tx], error) {
	s := &session[Tx]{
		locker: l, name: name, inner: inner, handles: 1,
		held:    make(map[row]int64, len(request.Values)),
		cancels: make(map[*context.CancelCauseFunc]*frame[Tx], 1),
		ended:   make(chan struct{}),
	}
	s.root = newFrame(s, nil)
	s.hold(request, token)
	if request.Work { // in which what was locked before stays
		s.working = 1
	}
	s.watch(asked)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions[s] = struct{}{}
	l.wake()
	if l.closed { // and Close has not seen it
		return s, errClosed
	}
	return s, nil
}

// enter takes a handle of the session that ctx carries, if there is one and it is still open.
func (l *Locker[Tx]) enter(ctx context.Context) *frame[Tx] {
	f, ok := ctx.Value(ownerKey[Tx]{l}).(*frame[Tx])
	if !ok {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return nil
	}
	f.handles++
	return f
}

// acquired is a handle of a session that holds the rows of a Mutex.
type acquired[Tx any] struct {
	*frame[Tx]
	joined bool // it was the caller's own already
	token  int64
}

// acquire locks the rows of m in the caller's own session, if ctx carries one, else in a new one.
// Wait, of begin, bounds it. After an error there is no handle.
func (m *Mutex[Tx]) acquire(ctx, wait context.Context, try, work bool) (a acquired[Tx], err error) {
	f := m.locker.enter(ctx)
	request, err := m.request(wait, try, f != nil)
	if m.locker.config.fencing && !work {
		request.Fence = m.locker.config.table
	}
	if f != nil {
		var token int64
		in := f
		if err == nil {
			in, token, err = f.join(wait, request)
		}
		if err = m.judge(ctx, wait, err); err != nil {
			if left := f.leave(ctx); left != nil && !errors.Is(err, ErrLost) {
				err = fmt.Errorf("%w (%w)", err, left) // this was the last handle, and nobody else is told
			}
			return a, err
		}
		return acquired[Tx]{frame: in, joined: true, token: token}, nil
	}
	request.Work, request.Lease = work, m.locker.config.lease
	if err == nil {
		var inner dialects.Session[Tx]
		var token int64
		asked := time.Now()
		if inner, token, err = m.locker.driver.Begin(wait, request); err == nil {
			var s *session[Tx]
			if s, err = m.locker.open(m.name, inner, request, token, asked); err == nil {
				err = ctx.Err()
			}
			if err == nil {
				return acquired[Tx]{frame: s.root, token: token}, nil
			}
			// The grant won the race against the end of ctx, whose owner has stopped waiting for
			// it, or against Close.
			_ = s.finish(ctx, false)
		}
	}
	return a, m.judge(ctx, wait, err)
}

// join locks the rows of request that the session does not hold for certain, and those that it
// holds without the token that is asked for. It returns the largest token of all, and the frame in
// which it locked.
func (f *frame[Tx]) join(ctx context.Context, request dialects.Request) (in *frame[Tx], token int64, err error) {
	if in, err = f.take(ctx); err != nil {
		return f, 0, err
	}
	defer in.yield()
	s := f.session
	if err := s.usable(); err != nil {
		return in, 0, err
	}
	s.mu.Lock()
	missing := request.Values[:0:0]
	for _, value := range request.Values {
		former, held := s.held[row{request.Table, request.Column, value.Text}]
		token = max(token, former)
		if !held || request.Fence != "" && former == 0 {
			missing = append(missing, value)
		}
	}
	s.mu.Unlock()
	if len(missing) == 0 {
		return in, token, s.present()
	}
	request.Values = missing
	s.probe() // it may wait for long, and no heartbeat comes between
	asked := time.Now()
	fresh, err := s.inner.Join(ctx, request)
	s.unprobe()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, ErrLost):
		s.gone(err)
		return in, 0, err
	case s.over: // its Do has returned meanwhile, and gave up waiting for this call
		return in, 0, lost(ErrNotHeld)
	case err != nil && time.Since(asked) < max(s.locker.config.lease/beatsPerLease, 2*time.Second):
		// It may be of our own making, and says nothing of the server.
		return in, 0, err
	}
	s.heard(asked)
	if err == nil && s.working == 0 {
		s.hold(request, fresh)
	}
	return in, max(token, fresh), err
}

// usable is an error when the session is lost, or has ended.
func (s *session[Tx]) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil && s.over {
		return lost(ErrNotHeld)
	}
	return s.broken
}

// hold notes rows as held. It is called with mu held, or before the session is shared.
func (s *session[Tx]) hold(request dialects.Request, token int64) {
	for _, value := range request.Values {
		s.held[row{request.Table, request.Column, value.Text}] = token
	}
}

// own derives a context that carries the frame, and ends with cause ErrLost when the session is
// lost. release ends it otherwise; it is false when the frame has been undone since.
func (f *frame[Tx]) own(parent context.Context) (ctx context.Context, release func() bool) {
	s := f.session
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, ownerKey[Tx]{s.locker}, f))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.broken != nil:
		cancel(s.broken)
	case s.over:
		cancel(errOutlived)
	}
	s.cancels[&cancel] = f
	return ctx, func() bool {
		s.mu.Lock()
		_, held := s.cancels[&cancel]
		delete(s.cancels, &cancel)
		s.mu.Unlock()
		cancel(nil)
		return held
	}
}

// errOutlived is why the context of a Lock ends that was taken in a Do and not unlocked in it.
var errOutlived = fmt.Errorf("%w: the Do in which the lock was taken has returned", ErrNotHeld)

// lose declares the session lost: its contexts end, and its work is not committed. It is called
// with mu held.
func (s *session[Tx]) lose(reason error) {
	if s.broken != nil {
		return
	}
	s.broken = lost(reason)
	for cancel := range s.cancels {
		(*cancel)(s.broken)
	}
}

// abort is Close's end of the session. Where a Do runs in it, that is asked to return by the end of
// its context, and ends the session then.
func (s *session[Tx]) abort(reason error) {
	s.mu.Lock()
	s.lose(reason)
	s.aborted = true
	mine := !s.over && s.working == 0
	s.over = s.over || mine
	s.mu.Unlock()
	if mine {
		_ = s.end(context.Background(), false)
	}
}

// leave gives a handle back. The last one ends the session.
func (s *session[Tx]) leave(ctx context.Context) error {
	s.mu.Lock()
	s.handles--
	last := !s.over && (s.handles == 0 || s.aborted && s.working == 0)
	s.over = s.over || last
	worked, broken, over := s.worked, s.broken, s.over
	s.mu.Unlock()
	switch {
	case last:
		return s.end(ctx, worked)
	case broken != nil:
		return broken
	case over: // the Do that began it has returned
		return ErrNotHeld
	}
	return nil
}

// end ends the transaction and gives the connection back. It is called once: by the one who set
// over.
func (s *session[Tx]) end(ctx context.Context, commit bool) error {
	s.unwatch()
	timeout := releaseTimeout
	s.mu.Lock()
	for cancel := range s.cancels {
		(*cancel)(errOutlived)
	}
	broken := s.broken
	// By gone, which Close does not call.
	logged := broken != nil && !errors.Is(broken, errClosed)
	if s.mute { // so that nobody waits for an answer
		s.cut()
	}
	s.mu.Unlock()
	if commit = commit && broken == nil; commit {
		timeout = commitTimeout
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()

	// A call may still be under way in the session, if it came with the context of a Do that has
	// returned. That context has ended, so it soon gives the turn back, unless it went on without
	// its cancellation; or a heartbeat is, of which the answer does not come. The connection is
	// theirs until then, and goes back to the pool, or is closed, behind them.
	select {
	case s.root.turn <- struct{}{}:
		close(s.root.closed)
		defer s.forget()
	case <-bounded.Done():
		s.stopBeat()
		s.cut() // so that the server lets go at once, and what waits for its answer ends
		if !logged {
			s.unconfirmed(ctx, errUnderWay)
		}
		go func() {
			defer s.forget()
			s.root.turn <- struct{}{}
			close(s.root.closed)
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
			defer cancel()
			_ = s.inner.Rollback(last)
		}()
		return lost(errUnderWay)
	}
	if commit {
		return s.inner.Commit(bounded)
	}
	err := s.inner.Rollback(bounded)
	if err != nil && !logged {
		s.unconfirmed(ctx, err)
	}
	if broken != nil {
		return broken
	}
	return err
}

// unconfirmed says in the log what the caller may not look at.
func (s *session[Tx]) unconfirmed(ctx context.Context, err error) {
	s.locker.config.logger.WarnContext(ctx, "txlock: closed a connection, because the release of its lock was not "+
		"confirmed", "lock", s.name, "error", err)
}

// forget takes the session off the Locker's list, when its connection has been given back.
func (s *session[Tx]) forget() {
	s.locker.mu.Lock()
	delete(s.locker.sessions, s)
	s.locker.mu.Unlock()
	close(s.ended)
}

func lost(reason error) error {
	if errors.Is(reason, ErrLost) {
		return reason
	}
	return fmt.Errorf("%w: %w", ErrLost, reason)
}
