package txlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// hold is Lock and TryLock.
func (m *Mutex[Tx]) hold(ctx context.Context, verb string, try bool) (*Lock, error) {
	ctx, trace := m.asked(ctx, verb, true)
	lock, err := m.take(ctx, verb, try)
	trace.follow(lock, err)
	return lock, err
}

func (m *Mutex[Tx]) take(ctx context.Context, verb string, try bool) (*Lock, error) {
	wait, cancel, err := m.begin(ctx)
	if err != nil {
		return nil, m.failed(verb, err)
	}
	defer cancel()
	s, err := m.acquire(ctx, wait, try, false)
	if err != nil {
		return nil, m.failed(verb, err)
	}
	owned, release := s.own(context.WithoutCancel(ctx))
	if s.released() {
		err := errUndone
		if release() { // else the handle was given back as well
			err = errors.Join(err, s.leave(ctx))
		}
		return nil, m.failed(verb, err)
	}
	return &Lock{ctx: owned, token: s.token, release: func(ctx context.Context) error {
		if !release() { // first: the holder's work must have ended when the server lets go
			return errUndone // and the handle was given back then
		}
		return s.leave(ctx)
	}}, nil
}

// run is Do and TryDo.
func (m *Mutex[Tx]) run(ctx context.Context, verb string, try bool, work func(context.Context, Tx) error) error {
	if work == nil {
		return m.failed(verb, errors.New("nil work"))
	}
	ctx, trace := m.asked(ctx, verb, true)
	return traced(trace, work, func(work func(context.Context, Tx) error) error {
		return m.perform(
			ctx, verb, try, work)
	})
}

func (m *Mutex[Tx]) perform(ctx context.Context, verb string, try bool, work func(context.Context, Tx) error) error {
	wait, cancel, err := m.begin(ctx)
	if err != nil {
		return m.failed(verb, err)
	}
	defer cancel()
	s, err := m.acquire(ctx, wait, try, true)
	if err != nil {
		return m.failed(verb, err)
	}
	if s.joined {
		return m.nest(ctx, wait, verb, s.frame, work)
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
		return m.failed(verb, errors.Join(fmt.Errorf("ended before the commit, which was not sent: %w", err),
			s.finish(ctx, false)))
	}
	return m.failed(verb, s.finish(ctx, true))
}

// do runs work with a context that carries the frame for as long as it runs.
func (f *frame[Tx]) do(ctx context.Context, tx Tx, work func(context.Context, Tx) error) error {
	owned, release := f.own(ctx)
	defer release()
	// No heartbeat comes between the statements of work. So that it learns of a network that went
	// silent, the kernels ask each other.
	f.probe()
	defer f.unprobe()
	return work(owned, tx)
}

// finish ends the session at the end of the Do that began it, whatever handles are left.
func (s *session[Tx]) finish(ctx context.Context, commit bool) error {
	s.mu.Lock()
	ended, broken := s.over, s.broken
	s.over = true
	s.mu.Unlock()
	if ended { // by Close
		return broken
	}
	return s.end(ctx, commit)
}

// errWorkFailed stands for the error of work where a driver could take that for its own.
var errWorkFailed = errors.New("the work failed")

// nest runs work in a savepoint of the session that ctx carries. Wait, of begin, bounds the wait
// for its turn.
func (m *Mutex[Tx]) nest(ctx, wait context.Context, verb string, f *frame[Tx], work func(context.Context, Tx) error) (
	err error,
) {
	s := f.session
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

	turn, err := f.take(wait)
	if err != nil {
		return m.failed(verb, errors.Join(m.judge(ctx, wait, err), leave(false)))
	}
	if f.released() { // since its rows were locked; not by turn, which is held
		turn.yield()
		return m.failed(verb, errors.Join(errUndone, leave(false)))
	}
	failed, err := turn.inNest(ctx, work)
	ended := leave(failed == nil && err == nil)
	if failed != nil {
		if ended == nil && errors.Is(err, ErrLost) {
			ended = err
		}
		if ended != nil && !errors.Is(failed, ErrLost) { // also that of a commit, for this was perhaps the last handle
			return fmt.Errorf("%w (%w)", failed, m.failed(verb, ended))
		}
		return failed
	}
	if err == nil {
		err = ended
	} else if ended != nil && !errors.Is(err, ErrLost) {
		err = fmt.Errorf("%w (%w)", err, ended)
	}
	return m.failed(verb, err)
}

// inNest runs work in a savepoint, in a frame of its own. It is called with the turn held, and
// gives it back. failed is the error of work, err any other.
func (f *frame[Tx]) inNest(ctx context.Context, work func(context.Context, Tx) error) (failed, err error) {
	defer f.yield()
	s := f.session
	if err := s.usable(); err != nil {
		return nil, err
	}
	f.nested.Add(1)
	defer f.nested.Add(1)
	asked := time.Now()
	inside := newFrame(s, f)
	kept := false
	defer func() { // also when work panicked: the savepoint has been rolled back, and that was answered
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.broken == nil {
			s.heard(asked)
		}
		if !kept {
			inside.undo()
		}
	}()
	var ended error
	err = s.inner.Nest(ctx, func(tx Tx) error {
		defer inside.close()
		if failed = inside.do(ctx, tx, work); failed != nil {
			return errWorkFailed
		}
		if ended = ctx.Err(); ended != nil {
			return errWorkFailed
		}
		return nil
	})
	switch {
	case errors.Is(err, ErrLost):
		s.mu.Lock()
		s.gone(err)
		s.mu.Unlock()
		if ended != nil {
			err = fmt.Errorf("%w (%w)", ended, err)
		}
	case ended != nil:
		err = ended
	}
	kept = err == nil
	return failed, err
}
