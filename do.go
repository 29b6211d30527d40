package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/txlock/txlock/dialects"
)

// Do waits for the lock, runs work in the lock's own transaction, at READ COMMITTED, and commits.
// Nil means that everything is committed, and was under the lock from the first statement on; after
// an error nothing is: that of work, of ctx, or [ErrLost], when the session broke or work ended the
// transaction. Two exceptions: [ErrUnknown], and what work commits itself by COMMIT as text. A
// panic rolls back and goes on. The context of work carries ownership, see Reentry. One goroutine
// uses tx, or calls with that context, at a time. In the work of another Do, work runs in a
// savepoint of its transaction. In a session that a Lock began, Do is [ErrInsideLock].
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
		return m.acquireAndPerform(ctx, verb, try, work)
	})
}

func (m *Mutex[Tx]) acquireAndPerform(ctx context.Context, verb string, try bool,
	work func(context.Context, Tx) error,
) (err error) {
	if s, of := m.locker.carried(ctx); s != nil {
		_, failed, err := m.nest(ctx, s, of, try, work)
		return joinErrors(failed, m.wrap(verb, err))
	}
	var g grant[Tx]
	if m.batched {
		g, err = m.acquireUntilClose(ctx, true)
	} else {
		g, err = m.acquire(ctx, ctx, try, true)
	}
	if err != nil {
		return m.wrap(verb, err)
	}
	if m.attached != nil {
		work = m.attach(g.session, g.Answer, work)
	}
	failed, err := g.performAndEnd(ctx, work)
	return joinErrors(failed, m.wrap(verb, err))
}

// performAndEnd runs the work of a Do that began the session, and ends the session. failed is the
// error of work, err any other.
func (s *session[Tx]) performAndEnd(ctx context.Context, work func(context.Context, Tx) error) (failed, err error) {
	returned := false
	defer func() {
		if !returned { // work panicked, or called runtime.Goexit
			_ = s.finish(ctx, false)
		}
	}()
	failed = s.run(ctx, s.calls, s.inner.Tx(), work)
	returned = true
	if failed != nil {
		return failed, s.finish(ctx, false)
	}
	if ended := ctx.Err(); ended != nil {
		ended = fmt.Errorf("ended before the commit, which was not sent: %w", ended)
		return nil, joinErrors(ended, s.finish(ctx, false))
	}
	return nil, s.finish(ctx, true)
}

// run runs work with a context that carries the session, and ends when work returns, or the session
// is lost or over.
func (s *session[Tx]) run(ctx context.Context, calls chan struct{}, tx Tx, work func(context.Context, Tx) error) error {
	owned := &ownership{session: s, calls: calls, outer: ownershipIn(ctx)}
	ctx, owned.stop = context.WithCancelCause(context.WithValue(ctx, ownershipKey{}, owned))
	defer owned.stop(nil)
	s.mu.Lock()
	s.works = append(s.works, owned)
	if over := context.Cause(s.life); over != nil {
		owned.stop(over)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.works = slices.DeleteFunc(s.works, func(other *ownership) bool { return other == owned })
	}()
	return work(ctx, tx)
}

// errWorkFailed stands for the error of work inside Session.Join: an ErrLost of another session,
// which work may return, is no loss of this one.
var errWorkFailed = errors.New("the work failed")

// nest runs the work of a Do, or an Exec, in a savepoint of the Do whose work has called it, with
// the lock in the savepoint. failed is the error of work, err any other: of ctx, of the lock, of
// the session, or of the savepoint.
//
// After an error nothing of the work is committed, also when the Do in which it was called ends
// meanwhile, since work of that one has left this call behind: a savepoint is kept only if the life
// of the session goes on behind the work, and the end of that life, which comes before the end of
// the session, sends nothing before this call has given the connection back.
func (m *Mutex[Tx]) nest(ctx context.Context, s *session[Tx], of *ownership, try bool,
	work func(context.Context, Tx) error,
) (got dialects.Grant, failed, err error) {
	wait, cancel, err := m.limitWait(ctx)
	if err != nil {
		return got, nil, err
	}
	defer cancel()
	if s.do == nil {
		return got, nil, ErrInsideLock
	}
	request := dialects.Request{Work: cmp.Or(m.statements, &anyWork)}
	if m.permit != nil { // what comes behind depends on the answer
		_, err = m.acquire(ctx, wait, try, false)
	} else {
		request, err = m.sessionRequest(wait, try, true, true)
	}
	if m.attached != nil {
		work = m.attach(nil, nil, work)
	}
	var ended error
	begun := false
	if err == nil {
		err = s.call(wait, of, func() error {
			_, rest, _, err := s.missing(request)
			if err != nil {
				return err
			}
			got, err = s.inner.Join(wait, rest, func(tx Tx) error {
				begun = true
				if failed, ended = s.runNested(ctx, tx, work); failed != nil || ended != nil {
					return errWorkFailed
				}
				return nil
			})
			return s.told(err)
		})
	}
	switch {
	case !begun:
		m.locker.invalidate(err)
		return got, nil, m.waitError(ctx, wait, err)
	case errors.Is(err, ErrLost):
		return got, failed, joinErrors(ended, err)
	case failed != nil || ended != nil:
		return got, failed, ended
	}
	return got, nil, err
}

// runNested runs the work of a nested Do, with calls of its own. It waits for those that are still
// under way when work has returned, or panicked: their context has ended. One that goes on all the
// same is ended with the session.
func (s *session[Tx]) runNested(ctx context.Context, tx Tx, work func(context.Context, Tx) error) (
	failed, ended error,
) {
	calls := make(chan struct{}, 1)
	defer func() {
		if !take(calls, dialects.ReleaseTimeout) {
			s.lose(errUnderWay)
			s.heartbeat.Cut()
			calls <- struct{}{}
		}
		ended = cmp.Or(ctx.Err(), context.Cause(s.life))
	}()
	return s.run(ctx, calls, tx, work), nil
}
