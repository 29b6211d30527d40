package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txlock/txlock/dialects"
)

// Apart returns ctx without the ownership that it carries: a call with it is another owner's, on
// another connection. So it waits for what that session holds, for ever if that session waits for
// the call.
func Apart(ctx context.Context) context.Context {
	return context.WithValue(ctx, ownershipKey{}, (*ownership)(nil))
}

// carriesOpen tells whether ctx carries an open session of l.
func (l *Locker[Tx]) carriesOpen(ctx context.Context) bool {
	s, _ := l.carried(ctx)
	return s != nil
}

// own returns a context with the values of another and ownership of the session, with whose life it
// ends.
func (s *session[Tx]) own(values context.Context, calls chan struct{}) (context.Context, context.CancelCauseFunc) {
	owned := &ownership{session: s, calls: calls, outer: ownershipIn(values)}
	return context.WithCancelCause(context.WithValue(lockContext{s.life, values}, ownershipKey{}, owned))
}

// lockContext is a life with the values of a call, whose end and deadline it does not have. The
// life is asked behind them: so the context package knows it as a parent, and ends what is derived
// from it at once.
type lockContext struct {
	context.Context
	values context.Context
}

func (c lockContext) Value(key any) any {
	return cmp.Or(context.WithoutCancel(c.values).Value(key), c.Context.Value(key))
}

// enter counts one more holder of a session that a Lock began. It is false when that is over.
func (s *session[Tx]) enter() bool {
	for n := s.depth.Load(); n > 0; n = s.depth.Load() {
		if s.do != nil || s.depth.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// join locks the rows of m for a Lock in the session of its caller, which it has entered.
func (m *Mutex[Tx]) join(wait context.Context, s *session[Tx], of *ownership, try bool) (g grant[Tx], err error) {
	defer func() {
		if g.session == nil { // also when the client library panicked
			err = joinErrors(err, s.leave(wait)) // which may be the last, and nobody else is told
		}
	}()
	request, err := m.request(wait, try, true, nil)
	var got dialects.Grant
	if err == nil {
		err = s.call(wait, of, func() (err error) {
			got, err = s.lockMissing(wait, request)
			return cmp.Or(context.Cause(s.life), err) // it may be over meanwhile
		})
	}
	if err != nil {
		return g, m.waitError(wait, err)
	}
	return grant[Tx]{session: s, Grant: got, calls: of.calls}, nil
}

// errBeside is the error of a call for which the connection of a Do is not free.
var errBeside = errors.New("another call, or a nested Do, runs in this transaction, or the nested Do whose context " +
	"this is has returned: inside the work of a Do use the context that it got, and let one call follow the other")

// call does what uses the connection. In the session of a Lock calls take turns. In the work of a
// Do the second of two calls side by side is an error at once: one savepoint would undo the
// other's. It is an error, too, when the session is lost or over before.
func (s *session[Tx]) call(ctx context.Context, of *ownership, do func() error) error {
	free := of.calls
	select {
	case free <- struct{}{}:
	default:
		if s.do != nil {
			return cmp.Or(context.Cause(s.life), errBeside)
		}
		select {
		case free <- struct{}{}:
		case <-s.life.Done():
			return context.Cause(s.life)
		case <-ctx.Done():
			return fmt.Errorf("%w: another call uses the session: %w", ErrNotAcquired, ctx.Err())
		}
	}
	defer func() { <-free }() // also when the client library panicked
	if over := context.Cause(s.life); over != nil {
		return over
	}
	return do()
}

// lockMissing locks what the session does not hold of request for certain, or holds without the
// token that is asked for. It returns the largest token of all.
func (s *session[Tx]) lockMissing(ctx context.Context, request dialects.Request) (fresh dialects.Grant, err error) {
	rest, token, err := s.missing(request)
	if err != nil {
		return fresh, err
	}
	if len(rest.Values) == 0 {
		s.heartbeat.Check() // nobody asks the server
		return dialects.Grant{Token: token}, nil
	}
	asked := time.Now()
	if fresh, err = s.inner.Join(ctx, rest, nil); errors.Is(err, ErrLost) {
		return fresh, s.noticed(err)
	}
	if ctx.Err() != nil && s.do == nil { // the answer may be old, see begin: that of a ping is not
		asked = time.Now()
		brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialects.ReleaseTimeout)
		failed := s.inner.Ping(brief)
		if cancel(); failed != nil {
			return fresh, s.noticed(dialects.Lost(failed))
		}
	}
	s.heartbeat.Heard(asked) // any error is an answer, too
	if err != nil {
		return fresh, err
	}
	if s.do == nil {
		s.held = slices.Insert(s.held, 0, locked{rest, fresh})
	}
	fresh.Token = max(token, fresh.Token)
	return fresh, nil
}

// locked is what a session has locked at once, and what came with it.
type locked struct {
	dialects.Request
	dialects.Grant
}

// missing is the request for what the session does not hold for certain, or holds without the token
// that is asked for. token is the largest of the others'. The error is ErrUpgrade.
//
// To share what the session holds alone would wait behind others on PostgreSQL, or miss, so that is
// locked alone once more, with all that is missing.
func (s *session[Tx]) missing(request dialects.Request) (rest dialects.Request, token int64, err error) {
	rest = request
	rest.Values = request.Values[:0:0]
	for _, value := range request.Values {
		at := slices.IndexFunc(s.held, func(l locked) bool {
			return l.Table == request.Table && l.Column == request.Column && slices.Contains(l.Values, value)
		})
		switch {
		case at < 0:
			rest.Values = append(rest.Values, value)
		case s.held[at].Shared && !request.Shared:
			return rest, 0, fmt.Errorf("%w (row %.100s of %.100s)", ErrUpgrade, value.Text, request.Table)
		case request.Fence == "" || s.held[at].Token > 0:
			token = max(token, s.held[at].Token)
		default:
			rest.Values, rest.Shared = append(rest.Values, value), rest.Shared && s.held[at].Shared
		}
	}
	return rest, token, nil
}

// errWorkFailed stands for the error of work inside Session.Join: an ErrLost of another session,
// which work may return, is no loss of this one.
var errWorkFailed = errors.New("the work failed")

// nest runs the work of a Do, or an Exec, in a savepoint of the Do whose work has called it, with
// the lock in the savepoint.
//
// After an error nothing of the work is committed, also when the Do in which it was called ends
// meanwhile, since work of that one has left this call behind: a savepoint is kept only if the life
// of the session goes on behind the work, and the end of that life, which comes before the end of
// the session, sends nothing before this call has given the connection back.
func (m *Mutex[Tx]) nest(ctx context.Context, s *session[Tx], of *ownership, verb string, try bool,
	sent *dialects.Work, work txFunc[Tx],
) (got dialects.Grant, err error) {
	if s.do == nil {
		return got, m.wrap(verb, ErrInsideLock)
	}
	wait, cancel, err := m.limitWait(ctx)
	if err != nil {
		return got, m.wrap(verb, err)
	}
	defer cancel()
	request, err := m.request(wait, try, true, sent)
	var failed, ended error
	begun := false
	if err == nil {
		err = s.call(wait, of, func() error {
			rest, _, err := s.missing(request)
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
			return s.noticed(err)
		})
	}
	switch {
	case !begun:
		err = m.waitError(wait, err)
	case errors.Is(err, errWorkFailed):
		err = ended
	default:
		err = joinErrors(ended, err)
	}
	return got, joinErrors(failed, m.wrap(verb, err))
}

// runNested runs the work of a nested Do, with calls of its own. It waits for those that are still
// under way when work has returned, or panicked: their context has ended. One that goes on all the
// same is ended with the session.
func (s *session[Tx]) runNested(ctx context.Context, tx Tx, work txFunc[Tx]) (failed, ended error) {
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

// LockTx waits for the lock in a transaction that the caller began and will end, and the lock with
// it, on PostgreSQL also by a rollback to an earlier savepoint. Where ctx and Within set no limit,
// a lock_timeout below a minute, or innodb_lock_wait_timeout, ends the wait. When ctx ends during
// the grant, LockTx may return nil. After an error the transaction is usable and has its settings,
// but after [ErrLost], and [ErrDeadlock] on MySQL and MariaDB, where some keys of a failed call may
// stay locked. On PostgreSQL it must be at READ COMMITTED, else [ErrIsolation]. On MySQL and
// MariaDB at REPEATABLE READ, lock before the first plain SELECT, whose snapshot stays.
func (m *Mutex[Tx]) LockTx(ctx context.Context, tx Tx) error {
	return m.lockTx(ctx, "LockTx", tx, false)
}

func (m *Mutex[Tx]) lockTx(ctx context.Context, verb string, tx Tx, try bool) error {
	ctx, trace := m.startTrace(ctx, verb, false)
	err := m.lockIn(ctx, verb, tx, try)
	trace.answer(err)
	return err
}

func (m *Mutex[Tx]) lockIn(ctx context.Context, verb string, tx Tx, try bool) error {
	var answer []string
	err := m.bounded(ctx, verb, func(wait context.Context) error {
		if m.permit != nil {
			return errPermitTx
		}
		request, err := m.request(wait, try, true, &anyWork) // with work it has no Fence
		if err == nil {
			request.Work, request.Lease = nil, 0
			err = m.locker.driver.LockTx(wait, tx, request)
		}
		if err != nil || m.attached == nil {
			return err
		}
		found, err := m.locker.find(wait, true)
		if err == nil {
			answer, err = m.locker.driver.Run(wait, m.attached.look(found.Kinds), tx)
		}
		return err
	})
	if err != nil || m.attached == nil {
		return err
	}
	return m.attached.judge(answer)
}
