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
	name   string // of what it locked first, for the log
	inner  dialects.Session[Tx]

	// turn is held by whoever sends statements of ours on the connection: it serves one goroutine at a time. It is not
	// held while work runs, which sends its own. Never taken while mu is held.
	turn chan struct{}

	vigil // while it is open

	mu      sync.Mutex
	held    map[row]int64 // and the token that each was locked with, 0 without
	handles int
	working int   // Dos that run in it; the session, and the connection, is theirs
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

func (l *Locker[Tx]) open(name string, inner dialects.Session[Tx], request dialects.Request, token int64) (*session[Tx], error) {
	s := &session[Tx]{
		locker: l, name: name, inner: inner, handles: 1,
		turn:    make(chan struct{}, 1),
		held:    make(map[row]int64, len(request.Values)),
		cancels: make(map[*context.CancelCauseFunc]struct{}, 1),
		ended:   make(chan struct{}),
	}
	s.hold(request, token)
	if request.Work {
		s.working = 1
	}
	s.watch()
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

// acquired is a handle of a session that holds the rows of a Mutex.
type acquired[Tx any] struct {
	*session[Tx]
	joined bool // it was the caller's own already
	token  int64
}

// acquire locks the rows of m in the caller's own session, if ctx carries one, else in a new one. After an error there is
// no handle.
func (m *Mutex[Tx]) acquire(ctx context.Context, try, work bool) (a acquired[Tx], err error) {
	wait, cancel, err := m.begin(ctx)
	if err != nil {
		return a, err
	}
	defer cancel()
	s := m.locker.enter(ctx)
	request, err := m.request(wait, try, s != nil)
	if m.locker.config.fencing && !work {
		request.Fence = m.locker.config.table
	}
	if s != nil {
		var token int64
		if err == nil {
			token, err = s.join(wait, request)
		}
		if err = m.judge(ctx, wait, err); err != nil {
			_ = s.leave(ctx) // what is wrong with the session is told to its other handles
			return a, err
		}
		return acquired[Tx]{session: s, joined: true, token: token}, nil
	}
	request.Work, request.Lease = work, m.locker.config.lease
	if err == nil {
		var inner dialects.Session[Tx]
		var token int64
		if inner, token, err = m.locker.driver.Begin(wait, request); err == nil {
			if s, err = m.locker.open(m.name, inner, request, token); err == nil {
				err = ctx.Err()
			}
			if err == nil {
				return acquired[Tx]{session: s, token: token}, nil
			}
			// The grant won the race against the end of ctx, whose owner has stopped waiting for it, or against Close.
			_ = s.finish(ctx, false)
		}
	}
	return a, m.judge(ctx, wait, err)
}

// join locks the rows of request that the session does not hold yet, and those that it holds without the token that is
// asked for. It returns the largest token of all.
func (s *session[Tx]) join(ctx context.Context, request dialects.Request) (token int64, err error) {
	select {
	case s.turn <- struct{}{}:
		defer s.yield()
	case <-ctx.Done():
		return 0, fmt.Errorf("another call uses the session: %w", ctx.Err())
	}
	s.mu.Lock()
	broken, over := s.broken, s.over
	missing := request.Values[:0:0]
	for _, value := range request.Values {
		former, held := s.held[row{request.Table, request.Column, value.Text}]
		token = max(token, former)
		if !held || request.Fence != "" && former == 0 {
			missing = append(missing, value)
		}
	}
	s.mu.Unlock()
	switch {
	case broken != nil:
		return 0, broken
	case over: // its Do returned meanwhile
		return 0, lost(ErrNotHeld)
	case len(missing) == 0:
		return token, nil
	}
	request.Values = missing
	fresh, err := s.inner.Join(ctx, request)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard()
	switch {
	case err == nil:
		s.hold(request, fresh)
	case errors.Is(err, ErrLost):
		s.lose(err)
	}
	return max(token, fresh), err
}

// hold notes rows as held. It is called with mu held, or before the session is shared.
func (s *session[Tx]) hold(request dialects.Request, token int64) {
	for _, value := range request.Values {
		s.held[row{request.Table, request.Column, value.Text}] = token
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

// lose declares the session lost: its contexts end, and its work is not committed. It is called with mu held.
func (s *session[Tx]) lose(reason error) {
	if s.broken != nil {
		return
	}
	s.broken = lost(reason)
	for cancel := range s.cancels {
		(*cancel)(s.broken)
	}
}

// abort is Close's end of the session. Where a Do runs in it, that is asked to return by the end of its context, and ends
// the session then.
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

// end ends the transaction and gives the connection back. It is called once: by the one who set over.
func (s *session[Tx]) end(ctx context.Context, commit bool) error {
	s.unwatch()
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
		return lost(errors.New("a statement that is under way in the session did not end"))
	}
	if commit {
		return s.inner.Commit(bounded)
	}
	err := s.inner.Rollback(bounded)
	if err != nil && broken == nil {
		s.locker.config.logger.WarnContext(ctx, "txlock: closed a connection, because the release of its lock was not confirmed", "lock", s.name, "error", err)
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
