package txlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/txlock/txlock/internal/lifecycle"
)

// Do waits for the lock, runs work in the lock's own transaction, at READ COMMITTED, and commits.
// Nil means that everything is committed, and was under the lock from the first statement on; after
// an error nothing is: that of work, of ctx, or [ErrLost], when the session broke or work ended the
// transaction. Two exceptions: what work commits itself by COMMIT as text is committed, and when
// the connection breaks during COMMIT the error says that the outcome is unknown. A panic rolls
// back and goes on. The context of work carries ownership, see Reentry. One goroutine uses tx, or
// calls with that context, at a time. In the work of another Do, work runs in a savepoint of its
// transaction, whose locks end with an error. In a session that a Lock began, Do is
// [ErrInsideLock].
func (m *Mutex[Tx]) Do(ctx context.Context, work func(ctx context.Context, tx Tx) error) error {
	return m.do(ctx, "Do", false, work)
}

// do is Do and TryDo.
func (m *Mutex[Tx]) do(ctx context.Context, verb string, try bool, work func(context.Context, Tx) error) error {
	if work == nil {
		return m.wrap(verb, errors.New("nil work"))
	}
	return m.retry(ctx, func(m *Mutex[Tx]) error { return m.attemptDo(ctx, verb, try, work) })
}

func (m *Mutex[Tx]) attemptDo(ctx context.Context, verb string, try bool, work func(context.Context, Tx) error) error {
	ctx, trace := m.startTrace(ctx, verb, true)
	return traced(trace, work, func(work func(context.Context, Tx) error) error {
		err := m.acquireAndPerform(ctx, verb, try, work)
		if m.outcome != nil {
			*m.outcome = err
		}
		return err
	})
}

func (m *Mutex[Tx]) acquireAndPerform(ctx context.Context, verb string, try bool,
	work func(context.Context, Tx) error,
) error {
	var g grant[Tx]
	var err error
	if m.outcome != nil {
		g, err = m.acquireUntilClose(ctx, true)
	} else {
		g, err = m.acquire(ctx, ctx, try, true)
	}
	if err != nil {
		return m.wrap(verb, err)
	}
	return m.perform(ctx, verb, g, work)
}

// perform runs work in the session, or in a savepoint if work of another Do runs there.
func (m *Mutex[Tx]) perform(ctx context.Context, verb string, g grant[Tx], work func(context.Context, Tx) error) error {
	perform := g.performAndEnd
	if g.turn != nil {
		perform = g.nest
	}
	if m.attached != nil {
		work = m.attach(g, work)
	}
	failed, err := perform(ctx, work)
	return joinErrors(failed, m.wrap(verb, err))
}

// performAndEnd runs the work of a Do that began the session, and ends the session. failed is the
// error of work, err any other.
func (g grant[Tx]) performAndEnd(ctx context.Context, work func(context.Context, Tx) error) (failed, err error) {
	returned := false
	defer func() {
		if !returned { // work panicked, or called runtime.Goexit
			_ = g.finish(ctx, false)
		}
	}()
	// A handle of the work's own, whose context ends with the work, while that of the Do keeps the
	// session open. It is not nil: nobody else ends the session.
	failed = g.run(ctx, g.handle.Enter(g.handle.Scope()), g.inner.Tx(), work)
	returned = true
	if failed != nil {
		return failed, g.finish(ctx, false)
	}
	if ended := ctx.Err(); ended != nil {
		ended = fmt.Errorf("ended before the commit, which was not sent: %w", ended)
		return nil, joinErrors(ended, g.finish(ctx, false))
	}
	return nil, g.finish(ctx, true)
}

// run runs work with a context that carries the session until work returns.
func (s *session[Tx]) run(ctx context.Context, handle *lifecycle.Handle, tx Tx,
	work func(context.Context, Tx) error,
) error {
	defer handle.Leave()
	defer s.heartbeat.Busy()()
	return work(s.own(ctx, handle), tx)
}

var (
	// errUndone is why the context of a Lock ends that was taken in the work of a nested Do that
	// failed.
	errUndone = fmt.Errorf("%w: the nested Do in which the lock was taken has failed", ErrNotHeld)

	// errWorkFailed stands for the error of work inside Session.Nest: an ErrLost of another
	// session, which work may return, is no loss of this one.
	errWorkFailed = errors.New("the work failed")
)

// nest runs the work of a Do in a savepoint of its caller's session, whose turn it has. failed is
// the error of work, err any other: of ctx, of the session, or of the savepoint.
//
// After an error nothing of the work is committed, also when the Do in which it was called ends
// meanwhile, since work of that one has left this call behind:
//
//   - The savepoint is kept if the caller's handle can be given back, and holds the session until
//     then. That decides, under one mutex with the begin of the session's end, which revokes what
//     handles are left: a nested Do is either revoked, and undone here, or not to be revoked.
//   - The session's end sends nothing before it has the turn, which this call keeps until its
//     savepoint was kept or rolled back.
//   - A session in which that has failed commits nothing.
func (g grant[Tx]) nest(ctx context.Context, work func(context.Context, Tx) error) (failed, err error) {
	defer func() { // also when work panicked
		g.turn.Give()
		err = joinErrors(err, g.leave(ctx, g.handle))
	}()
	var inside *lifecycle.Scope
	var ended error
	err = g.inner.Nest(ctx, func(tx Tx) error {
		inside = g.turns.Nest(g.turn)
		if failed, ended = g.runNested(ctx, inside, tx, work); failed == nil && ended == nil {
			_, ended = g.handle.Leave()
		}
		if failed != nil || ended != nil {
			return errWorkFailed
		}
		return nil
	})
	if err != nil && inside != nil { // also when the server has refused to keep the savepoint
		g.undo(inside)
	}
	if errors.Is(err, ErrLost) {
		return failed, joinErrors(ended, g.told(err))
	}
	if failed != nil || ended != nil {
		err = ended
	}
	return failed, err
}

// runNested runs the work of a nested Do in its scope, which it ends. When work fails, who holds a
// lock of that scope is told first, which also ends the calls that are under way with its context.
// One that goes on all the same is ended with the session.
func (g grant[Tx]) runNested(ctx context.Context, inside *lifecycle.Scope, tx Tx,
	work func(context.Context, Tx) error,
) (failed, ended error) {
	kept := false
	defer func() { // also when work panicked
		if !kept {
			g.undo(inside)
		}
		g.turns.Unnest(inside, releaseTimeout, func() {
			g.lose(errUnderWay)
			g.heartbeat.Cut()
		})
	}()
	handle := g.handle.Enter(inside)
	if handle == nil {
		return nil, errOutlived
	}
	failed, ended = g.run(ctx, handle, tx, work), ctx.Err()
	kept = failed == nil && ended == nil
	return failed, ended
}

// undo ends what was locked in the scope of a nested Do, whose savepoint is rolled back.
func (s *session[Tx]) undo(inside *lifecycle.Scope) {
	s.life.Undo(inside, errUndone)
	s.dropScope(inside)
}
