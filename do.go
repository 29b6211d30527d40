package txlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
)

// Do waits for the lock, runs work in the lock's own transaction, at READ COMMITTED, and commits.
// Nil means that everything is committed, and was under the lock from the first statement on; after
// an error nothing is: that of work, of ctx, or [ErrLost]. Two exceptions: [ErrUnknown], and what
// work commits itself by COMMIT as text. A panic rolls back and goes on. One goroutine at a time
// uses tx, or calls with the context of work, which carries ownership: see Reentry.
func (m *Mutex[Tx]) Do(ctx context.Context, work func(ctx context.Context, tx Tx) error) error {
	return m.do(ctx, "Do", false, work)
}

// txFunc is work of a Do.
type txFunc[Tx any] = func(context.Context, Tx) error

func (m *Mutex[Tx]) do(ctx context.Context, verb string, try bool, work txFunc[Tx]) error {
	if work == nil {
		return m.wrap(verb, errors.New("nil work"))
	}
	return m.attempts(ctx, verb, work, func(ctx context.Context, m *Mutex[Tx], work txFunc[Tx]) error {
		return m.acquireAndPerform(ctx, verb, try, work)
	})
}

// attempts runs a call, and again as Retry says, but in the work of a Do, which has to run again as
// a whole. The Tracer is told of each attempt: the lock is granted when work begins.
func (m *Mutex[Tx]) attempts(ctx context.Context, verb string, work txFunc[Tx],
	run func(ctx context.Context, m *Mutex[Tx], work txFunc[Tx]) error,
) error {
	attempt := func(m *Mutex[Tx]) error {
		if m.locker == nil || m.locker.config.tracer == nil {
			return run(ctx, m, work)
		}
		ctx, trace := m.startTrace(ctx, verb, true)
		return traced(trace, work, func(work txFunc[Tx]) error { return run(ctx, m, work) })
	}
	if m.retries == 0 || m.locker.carriesOpen(ctx) {
		return attempt(m)
	}
	return m.retry(ctx, attempt)
}

// anyWork sends what it likes.
var anyWork dialects.Work

func (m *Mutex[Tx]) acquireAndPerform(ctx context.Context, verb string, try bool, work txFunc[Tx]) (err error) {
	if s, of := m.locker.carried(ctx); s != nil {
		if m.attached != nil {
			work = m.attach(nil, nil, work)
		}
		_, err = m.nest(ctx, s, of, verb, try, &anyWork, work)
		return err
	}
	g, err := m.acquire(ctx, try, &anyWork)
	if err != nil {
		return m.wrap(verb, err)
	}
	if m.attached != nil {
		work = m.attach(g.session, g.Answer, work)
	}
	commit := false
	defer func() { // also when work panicked, or called runtime.Goexit
		if ended := g.finish(ctx, commit); ended != nil {
			err = joinErrors(err, m.wrap(verb, ended))
		}
	}()
	if err = g.run(ctx, g.calls, g.inner.Tx(), work); err != nil {
		return err
	}
	if ended := ctx.Err(); ended != nil {
		return m.wrap(verb, fmt.Errorf("ended before the commit, which was not sent: %w", ended))
	}
	commit = true
	return nil
}

// run runs work with a context that carries the session, and ends when work returns, or the session
// is lost or over.
func (s *session[Tx]) run(ctx context.Context, calls chan struct{}, tx Tx, work txFunc[Tx]) error {
	owned := &ownership{session: s, calls: calls, outer: ownershipIn(ctx)}
	owned.work, owned.stop = context.WithCancelCause(context.WithValue(ctx, ownershipKey{}, owned))
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
	return work(owned.work, tx)
}

// attached is what a kind sends along with a Do: behind its lock, and with its COMMIT. In the work
// of another Do it stands in the savepoint of that Do instead. A LockTx has no last.
type attached struct {
	look func(dialects.Kinds) dialects.Query
	// judge says whether the work is to run, by the answer to look. Its error is that of the call.
	judge func(answer []string) error
	last  func(dialects.Kinds) dialects.Query // after the work, unless that failed; nil: nothing is
}

// asking returns a copy with a query of a kind behind its lock.
func (m *Mutex[Tx]) asking(look func(dialects.Kinds) dialects.Query, judge func(answer []string) error) *Mutex[Tx] {
	asking := *m
	asking.attached = &attached{look: look, judge: judge}
	return &asking
}

// attach is work with what is attached, in the session s of its Do, which has answered to the look;
// or, with nil, in the savepoint.
func (m *Mutex[Tx]) attach(s *session[Tx], answer []string, work txFunc[Tx]) txFunc[Tx] {
	return func(ctx context.Context, tx Tx) error {
		found, err := m.locker.find(ctx, true)
		if err == nil && s == nil {
			answer, err = m.locker.askInWork(ctx, m.attached.look(found.Kinds))
		}
		if err == nil {
			err = m.attached.judge(answer)
		}
		if err == nil {
			err = work(ctx, tx)
		}
		switch {
		case err != nil || m.attached.last == nil:
		case s != nil:
			s.last = []dialects.Query{m.attached.last(found.Kinds)}
		default:
			_, err = m.locker.askInWork(ctx, m.attached.last(found.Kinds))
		}
		return err
	}
}

// askInWork runs a statement of a kind in the work of a Do, whose context ctx is.
func (l *Locker[Tx]) askInWork(ctx context.Context, q dialects.Query) (lines []string, err error) {
	s, of := l.carried(ctx)
	if s == nil {
		return nil, errOutlived
	}
	err = s.call(ctx, of, func() (err error) {
		lines, err = s.inner.Run(ctx, q)
		return s.noticed(err)
	})
	return lines, err
}

// Statement is a statement of [Mutex.Exec].
type Statement = dialects.Statement

// Exec waits for the lock, runs the statements in order in the lock's own transaction, and commits.
// It returns how many rows each has affected, and promises what [Mutex.Do] does, but a connection
// that breaks, also in the wait, may be [ErrUnknown]. It takes one round trip where the server can
// judge all before it commits, see docs/exec.md. The error of a statement has its number, and is
// the client library's own, or [ErrRows]. Within bounds the wait, ctx everything.
func (m *Mutex[Tx]) Exec(ctx context.Context, statements ...Statement) (affected []int64, err error) {
	return m.exec(ctx, "Exec", false, statements)
}

func (m *Mutex[Tx]) exec(ctx context.Context, verb string, try bool, list []Statement) (affected []int64, err error) {
	err = check(list)
	if err == nil && m.permit != nil {
		err = errors.New("a Semaphore has no Exec: send the statements in the work of a Do")
	}
	if err != nil {
		return nil, m.wrap(verb, err)
	}
	none := func(context.Context, Tx) error { return nil }
	err = m.attempts(ctx, verb, none, func(ctx context.Context, m *Mutex[Tx], granted txFunc[Tx]) (err error) {
		var g grant[Tx]
		sent := &dialects.Work{Statements: list, Context: ctx}
		if s, of := m.locker.carried(ctx); s != nil {
			g.Grant, err = m.nest(ctx, s, of, verb, try, sent, nil)
		} else {
			g, err = m.acquire(ctx, try, sent)
			err = final(m.wrap(verb, err)) // in a Do no COMMIT is sent, and that may run again
		}
		if affected = g.Affected; isOfWork(err) {
			var none Tx
			_ = granted(ctx, none)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return affected, nil
}

// check is for what is wrong without a look at the database.
func check(statements []Statement) error {
	if len(statements) == 0 {
		return errors.New("no statement given")
	}
	for i, s := range statements {
		switch {
		case strings.TrimSpace(s.SQL) == "":
			return fmt.Errorf("statement %d: empty SQL", i+1)
		case s.Rows < 0:
			return fmt.Errorf("statement %d: Rows is %d; 0 is any number", i+1, s.Rows)
		}
	}
	return nil
}

// isOfWork tells whether an error is that of a statement of Exec, for which the lock was granted.
func isOfWork(err error) bool { return errors.As(err, new(*dialects.StatementError)) }

// Retry returns a copy whose Do, TryDo, Exec and TryExec run again, up to n times, at least 1,
// after an error with which nothing is committed and which another attempt may not meet: a
// deadlock, and the [ErrLost] of a Do before COMMIT was sent. Any error in the work of another Do
// is final: that has to run again as a whole. The work must be fit to run twice, and must not end
// its transaction. Within bounds the wait of each attempt, ctx all.
func (m *Mutex[Tx]) Retry(n int) *Mutex[Tx] {
	again := *m
	again.retries = n
	if n < 1 && again.err == nil {
		again.err = fmt.Errorf("Retry(%d): at least 1 more attempt", n)
	}
	return &again
}

// retry runs a call again as Retry says.
func (m *Mutex[Tx]) retry(ctx context.Context, run func(*Mutex[Tx]) error) error {
	for n := 0; ; n++ {
		attempt := *m
		attempt.target.call.Attempt = n
		err := run(&attempt)
		if n == m.retries || !m.mayRunAgain(err) {
			if err != nil && n > 0 {
				err = fmt.Errorf("%w (in attempt %d)", err, n+1)
			}
			return err
		}
		if !m.locker.pause(ctx, rand.N(5*time.Millisecond<<min(n, 5)), nil) { // up to 160 ms
			return joinErrors(err, ctx.Err())
		}
	}
}

// mayRunAgain tells whether another attempt can do no harm after that error, and may not meet it.
func (m *Mutex[Tx]) mayRunAgain(err error) bool {
	var sent finalError
	if err == nil || m.locker.ready() != nil || m.err != nil || errors.As(err, &sent) || errors.Is(err, ErrClaimEnded) {
		return false
	}
	return errors.Is(err, ErrDeadlock) || errors.Is(err, ErrLost) || m.locker.driver.Classify(err) == dialects.Deadlock
}

// finalError is an ErrLost of a call that has sent COMMIT, or may have: something may be committed.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// final marks the error of a call that sends COMMIT, if it is an ErrLost.
func final(err error) error {
	if errors.Is(err, ErrLost) {
		return finalError{err}
	}
	return err
}
