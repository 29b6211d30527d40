package txlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/txlock/txlock/internal/lifecycle"
)

// do is Do and TryDo.
func (m *Mutex[Tx]) do(ctx context.Context, verb string, try bool, work func(context.Context, Tx) error) error {
	if work == nil {
		return m.failed(verb, errors.New("nil work"))
	}
	ctx, trace := m.asked(ctx, verb, true)
	return traced(trace, work, func(work func(context.Context, Tx) error) error {
		g, err := m.acquire(ctx, try, true)
		if err != nil {
			return m.failed(verb, err)
		}
		perform := g.perform
		if g.turn != nil {
			perform = g.nest
		}
		failed, err := perform(ctx, work)
		return also(failed, m.failed(verb, err))
	})
}

// perform runs the work of a Do that began the session, and ends the session. failed is the error
// of work, err any other.
func (g grant[Tx]) perform(ctx context.Context, work func(context.Context, Tx) error) (failed, err error) {
	returned := false
	defer func() {
		if !returned { // work panicked, or called runtime.Goexit
			_ = g.finish(ctx, false)
		}
	}()
	failed = g.run(ctx, g.handle.Scope(), g.inner.Tx(), work)
	returned = true
	if failed != nil {
		return failed, g.finish(ctx, false)
	}
	if ended := ctx.Err(); ended != nil {
		ended = fmt.Errorf("ended before the commit, which was not sent: %w", ended)
		return nil, also(ended, g.finish(ctx, false))
	}
	return nil, g.finish(ctx, true)
}

// run runs work in scope, with a context that carries the session until work returns.
func (s *session[Tx]) run(ctx context.Context, scope *lifecycle.Scope, tx Tx,
	work func(context.Context, Tx) error,
) error {
	handle := s.life.Enter(scope)
	if handle == nil {
		return errOutlived
	}
	defer handle.Leave() // not the last: the Do that began the session has one
	defer s.heartbeat.Await()()
	return work(s.own(ctx, handle), tx)
}

var (
	// errUndone is why the context of a Lock ends that was taken in the work of a nested Do that
	// failed.
	errUndone = fmt.Errorf("%w: the nested Do in which the lock was taken has failed", ErrNotHeld)

	// errWorkFailed stands for the error of work where a driver could take that for its own.
	errWorkFailed = errors.New("the work failed")
)

// nest runs the work of a Do in a savepoint of its caller's session, whose turn it has. failed is
// the error of work, err any other.
func (g grant[Tx]) nest(ctx context.Context, work func(context.Context, Tx) error) (failed, err error) {
	var inside *lifecycle.Scope // nil: work has not begun
	var ended error
	kept := false
	defer func() { // also when work panicked: the savepoint is rolled back, and nobody else has the turn
		if inside != nil && !kept {
			g.life.Undo(inside, errUndone)
		}
		g.turn.Give()
		err = also(err, g.leave(ctx, g.handle))
	}()
	err = g.inner.Nest(ctx, func(tx Tx) error {
		inside = g.turns.Nest(g.turn)
		// A call that work has left behind may be under way. Its context has ended; if it goes on
		// without its cancellation, it is ended with the session.
		defer g.turns.Unnest(inside, releaseTimeout, func() {
			g.lose(errUnderWay)
			g.heartbeat.Cut()
		})
		if failed = g.run(ctx, inside, tx, work); failed != nil {
			return errWorkFailed
		}
		if ended = ctx.Err(); ended != nil {
			return errWorkFailed
		}
		return nil
	})
	kept = err == nil
	if errors.Is(err, ErrLost) {
		g.lose(err)
		return failed, also(ended, err)
	}
	if failed != nil || ended != nil {
		err = ended
	}
	return failed, err
}
