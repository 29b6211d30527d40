package txlock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/txlock/txlock/dialects"
)

// session is a database session that holds rows, shared by the handles that joined it: the Lock or Do that began it,
// and what was called with its context since.
//
// A context carries the session; nothing else makes a caller its owner. handles is the depth of reentry: the session ends
// when it falls to 0, in whichever order the handles go, or when the Do that began it returns. The rows stay locked until
// then, because the database cannot release one of them alone.
type session[Tx any] struct {
	locker *Locker[Tx]
	inner  dialects.Session[Tx]

	// turn is held by whoever sends statements of ours on the connection: it serves one goroutine at a time. It is not
	// held while work runs, which sends its own. Never taken while mu is held.
	turn chan struct{}

	mu      sync.Mutex
	held    map[row]struct{}
	handles int
	working int   // Dos that run in it; the session is theirs to end
	worked  bool  // a Do succeeded in it: it ends with COMMIT
	over    bool  // it ended, or is ending
	aborted bool  // Close wants it ended
	broken  error // why it is lost; the work is then not committed
	cancels map[*context.CancelCauseFunc]struct{}

	ended chan struct{} // closed when the connection has been given back
}

// row is what a session holds.
type row struct{ table, column, value string }

// ownerKey is the context key of the session that a Locker's caller holds.
type ownerKey[Tx any] struct{ locker *Locker[Tx] }

func (l *Locker[Tx]) open(inner dialects.Session[Tx], request dialects.Request) (*session[Tx], error) {
	s := &session[Tx]{
		locker: l, inner: inner, handles: 1,
		turn:    make(chan struct{}, 1),
		held:    make(map[row]struct{}, len(request.Values)),
		cancels: make(map[*context.CancelCauseFunc]struct{}, 1),
		ended:   make(chan struct{}),
	}
	s.hold(request)
	if request.Work {
		s.working = 1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions[s] = struct{}{}
	if l.closed { // and Close has not seen it
		return s, errClosed
	}
	return s, nil
}

// enter takes a handle of the session that ctx carries, if there is one and it is still open.
func (l *Locker[Tx]) enter(ctx context.Context) *session[Tx] {
	s, ok := ctx.Value(ownerKey[Tx]{l}).(*session[Tx])
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	s.handles++
	return s
}

// acquire returns a session that holds the rows of m, and a handle of it: the caller's own, if ctx carries one, else a
// new one. After an error there is no handle.
func (m *Mutex[Tx]) acquire(ctx context.Context, try, work bool) (s *session[Tx], joined bool, err error) {
	wait, cancel, err := m.begin(ctx)
	if err != nil {
		return nil, false, err
	}
	defer cancel()
	s = m.locker.enter(ctx)
	request, err := m.request(wait, try, s != nil)
	if s != nil {
		if err == nil {
			err = s.join(wait, request)
		}
		if err = m.judge(ctx, wait, err); err != nil {
			_ = s.leave(ctx) // what is wrong with the session is told to its other handles
			return nil, false, err
		}
		return s, true, nil
	}
	request.Work = work
	if err == nil {
		var inner dialects.Session[Tx]
		if inner, err = m.locker.driver.Begin(wait, request); err == nil {
			if s, err = m.locker.open(inner, request); err == nil {
				err = ctx.Err()
			}
			if err == nil {
				return s, false, nil
			}
			// The grant won the race against the end of ctx, whose owner has stopped waiting for it, or against Close.
			_ = s.finish(ctx, false)
		}
	}
	return nil, false, m.judge(ctx, wait, err)
}

// join locks the rows of request that the session does not hold yet.
func (s *session[Tx]) join(ctx context.Context, request dialects.Request) error {
	select {
	case s.turn <- struct{}{}:
		defer s.yield()
	case <-ctx.Done():
		return fmt.Errorf("another call uses the session: %w", ctx.Err())
	}
	s.mu.Lock()
	broken, over := s.broken, s.over
	missing := request.Values[:0:0]
	for _, value := range request.Values {
		if _, held := s.held[row{request.Table, request.Column, value.Text}]; !held {
			missing = append(missing, value)
		}
	}
	s.mu.Unlock()
	switch {
	case broken != nil:
		return broken
	case over: // its Do returned meanwhile
		return lost(ErrNotHeld)
	case len(missing) == 0:
		return nil
	}
	request.Values = missing
	err := s.inner.Join(ctx, request)
	if err == nil {
		s.mu.Lock()
		s.hold(request)
		s.mu.Unlock()
	}
	if errors.Is(err, ErrLost) {
		s.abandon(err)
	}
	return err
}

// hold notes rows as held. It is called with mu held, or before the session is shared.
func (s *session[Tx]) hold(request dialects.Request) {
	for _, value := range request.Values {
		s.held[row{request.Table, request.Column, value.Text}] = struct{}{}
	}
}

func (s *session[Tx]) yield() { <-s.turn }

// own derives a context that carries the session, and ends with cause ErrLost when it is lost. release ends it otherwise.
func (s *session[Tx]) own(parent context.Context) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, ownerKey[Tx]{s.locker}, s))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		cancel(s.broken)
	}
	s.cancels[&cancel] = struct{}{}
	return ctx, func() {
		s.mu.Lock()
		delete(s.cancels, &cancel)
		s.mu.Unlock()
		cancel(nil)
	}
}

// abandon declares the session lost: its contexts end, and its work is not committed.
func (s *session[Tx]) abandon(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = lost(reason)
	}
	for cancel := range s.cancels {
		(*cancel)(s.broken)
	}
}

// abort is Close's end of the session. Where a Do runs in it, that is asked to return by the end of its context, and ends
// the session then.
func (s *session[Tx]) abort(reason error) {
	s.abandon(reason)
	s.mu.Lock()
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

// end ends the transaction and gives the connection back. It is called once: by the one who set over.
func (s *session[Tx]) end(ctx context.Context, commit bool) error {
	timeout := releaseTimeout
	s.mu.Lock()
	broken := s.broken
	s.mu.Unlock()
	if commit = commit && broken == nil; commit {
		timeout = commitTimeout
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	defer s.forget()

	// A call may still be sending on the connection, if it came with the context of a Do that has returned. That context
	// has ended, so it gives the turn back soon, unless it went on without its cancellation.
	select {
	case s.turn <- struct{}{}:
		defer s.yield()
	case <-bounded.Done():
		go func() {
			s.turn <- struct{}{}
			_ = s.inner.Rollback(context.WithoutCancel(ctx))
		}()
		return lost(errors.New("another call in the session did not end"))
	}
	if commit {
		return s.inner.Commit(bounded)
	}
	err := s.inner.Rollback(bounded)
	if err != nil {
		s.locker.config.logger.WarnContext(ctx, "txlock: closed a connection, because the release of its lock was not confirmed", "error", err)
	}
	if broken != nil {
		return broken
	}
	return err
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

// hold is Lock and TryLock.
func (m *Mutex[Tx]) hold(ctx context.Context, verb string, try bool) (*Lock, error) {
	s, _, err := m.acquire(ctx, try, false)
	if err != nil {
		return nil, m.failed(verb, err)
	}
	owned, release := s.own(context.WithoutCancel(ctx))
	return &Lock{ctx: owned, release: func(ctx context.Context) error {
		defer release()
		return s.leave(ctx)
	}}, nil
}

// run is Do and TryDo.
func (m *Mutex[Tx]) run(ctx context.Context, verb string, try bool, work func(context.Context, Tx) error) error {
	if work == nil {
		return m.failed(verb, errors.New("nil work"))
	}
	s, joined, err := m.acquire(ctx, try, true)
	if err != nil {
		return m.failed(verb, err)
	}
	if joined {
		return m.nest(ctx, verb, s, work)
	}
	finished := false
	defer func() { // work panicked, or called runtime.Goexit
		if !finished {
			_ = s.finish(ctx, false)
		}
	}()
	err = s.do(ctx, s.inner.Tx(), work)
	finished = true
	if err != nil {
		if failed := s.finish(ctx, false); errors.Is(failed, ErrLost) && !errors.Is(err, ErrLost) {
			return fmt.Errorf("%w (%w)", err, m.failed(verb, failed))
		}
		return err
	}
	if err := ctx.Err(); err != nil {
		return m.failed(verb, errors.Join(fmt.Errorf("ended before the commit, so nothing is committed: %w", err), s.finish(ctx, false)))
	}
	return m.failed(verb, s.finish(ctx, true))
}

// do runs work with a context that carries the session for as long as it runs.
func (s *session[Tx]) do(ctx context.Context, tx Tx, work func(context.Context, Tx) error) error {
	owned, release := s.own(ctx)
	defer release()
	return work(owned, tx)
}

// finish ends the session at the end of the Do that began it, whatever handles are left.
func (s *session[Tx]) finish(ctx context.Context, commit bool) error {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	return s.end(ctx, commit)
}

// nest runs work in a savepoint of the session that ctx carries.
func (m *Mutex[Tx]) nest(ctx context.Context, verb string, s *session[Tx], work func(context.Context, Tx) error) (err error) {
	s.mu.Lock()
	s.working++
	s.mu.Unlock()
	left := false
	leave := func(succeeded bool) error {
		left = true
		s.mu.Lock()
		s.working--
		s.worked = s.worked || succeeded
		s.mu.Unlock()
		return s.leave(ctx)
	}
	defer func() { // work panicked, or called runtime.Goexit
		if !left {
			_ = leave(false)
		}
	}()

	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return m.failed(verb, errors.Join(fmt.Errorf("%w: another call uses the session: %w", ErrNotAcquired, ctx.Err()), leave(false)))
	}
	var failed error // the work's own error, to be returned as it is
	err = s.inNest(ctx, func(tx Tx) error {
		if failed = s.do(ctx, tx, work); failed == nil {
			return ctx.Err()
		}
		return failed
	})
	if errors.Is(err, ErrLost) {
		s.abandon(err)
	}
	ended := leave(err == nil)
	switch {
	case failed != nil && (!errors.Is(err, ErrLost) || errors.Is(failed, ErrLost)):
		return failed
	case err != nil:
		return m.failed(verb, err)
	}
	return m.failed(verb, ended)
}

// inNest runs work in a savepoint. The turn, which the caller holds and inNest gives back, is given away while work runs.
func (s *session[Tx]) inNest(ctx context.Context, work func(tx Tx) error) error {
	defer s.yield()
	return s.inner.Nest(ctx, func(tx Tx) error {
		s.yield()
		defer func() { s.turn <- struct{}{} }()
		return work(tx)
	})
}
