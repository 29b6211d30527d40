package txlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/txlock/txlock/internal/peer"
)

// hold is Lock and TryLock.
func (m *Mutex[Tx]) hold(ctx context.Context, verb string, try bool) (*Lock, error) {
	s, err := m.acquire(ctx, try, false)
	if err != nil {
		return nil, m.failed(verb, err)
	}
	owned, release := s.own(context.WithoutCancel(ctx))
	return &Lock{ctx: owned, token: s.token, release: func(ctx context.Context) error {
		defer release()
		return s.leave(ctx)
	}}, nil
}

// run is Do and TryDo.
func (m *Mutex[Tx]) run(ctx context.Context, verb string, try bool, work func(context.Context, Tx) error) error {
	if work == nil {
		return m.failed(verb, errors.New("nil work"))
	}
	s, err := m.acquire(ctx, try, true)
	if err != nil {
		return m.failed(verb, err)
	}
	if s.joined {
		return m.nest(ctx, verb, s.session, work)
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
	// No heartbeat comes between the statements of work. So that it learns of a network that went silent, the kernels ask
	// each other.
	defer peer.Probe(s.inner.Socket(), s.locker.config.lease)()
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
		s.heard()
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
		s.mu.Lock()
		s.lose(err)
		s.mu.Unlock()
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
