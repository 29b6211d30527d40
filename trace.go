package txlock

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
)

// Tracer is told of every call that locks, see [WithTracer], in the goroutine of that call, except
// for the loss of a Lock, and for batches of [Combine]. It must return soon and not panic: a panic
// goes on there, and leaves nothing locked or in a queue, but a claim taken. The module txlock/otel
// has one for OpenTelemetry.
type Tracer interface {
	// Asked is called before a call waits. It returns a context that is derived from ctx, which the
	// methods below get. The work of a Do and [Lock.Context] inherit its values.
	Asked(ctx context.Context, call Call) context.Context
	// Answered is called when the wait is over, or an Exec: with nil when the lock is held, or the
	// work of a [Once] was done before, else with the error that the call will return.
	Answered(ctx context.Context, err error)
	// Ended is called once for each granted lock: with nil after a release or a commit, also of the
	// Do in which a Lock was taken and of a kept savepoint; else with the error that the call
	// returns, or with ErrLost as soon as the loss of a Lock is known. It is not called for LockTx.
	Ended(ctx context.Context, err error)
}

// QueueTracer is also told, between Asked and Answered, when a call joins the line in the process,
// see [WithQueue], and when it goes on at the server, or gives up.
type QueueTracer interface {
	Tracer
	Queued(ctx context.Context)
	Admitted(ctx context.Context)
}

// Call is a call that locks, as a Tracer is told of it. A batch of [Combine] is one, and so is each
// part that is tried again. A term of an [Election] is one, which waits until its work begins.
type Call struct {
	// Name is that of the method of a Mutex, as TryLock, or of a Once or a claim, as Once.Do,
	// Claim.Take and Claimed.Do. Others are Combine, OnceValue, TryOnceValue, Lead, Claim.Break and
	// AnyRows.Do.
	Name   string
	System string // "postgresql" or "mysql", which stands for MariaDB as well
	// Table and Column are of the rows: the lock table, where Column is empty, or those of Rows.
	// Those of an election are the lock table and "election", of a semaphore it and "semaphore".
	Table, Column string
	// Names are the keys, that of a Once behind "once:", of a claim behind "claim:", or the values
	// of Rows, or the election; none of Any. They are not to be changed.
	Names   []string
	Shared  bool // by Mutex.Shared
	Nested  bool // the context carries an open session of the Locker, which the call joins; no LockTx does
	Attempt int  // how often [Mutex.Retry] has run the call before; each is told as one of its own
}

// trace is what the Tracer is told of one call. A nil trace tells nobody.
type trace struct {
	tracer          Tracer
	ctx             context.Context // as Asked has returned it
	unfollow        func() bool     // forgets that the context of a Lock ends
	answered, ended atomic.Bool
}

// startTrace begins the trace of a call, and returns the context that the call goes on with. joins
// says that the call would join a session that ctx carries.
func (m *Mutex[Tx]) startTrace(ctx context.Context, verb string, joins bool) (context.Context, *trace) {
	l := m.locker
	if l == nil || l.config.tracer == nil || l.config.err != nil {
		return ctx, nil
	}
	call := m.target.call
	call.Name, call.System = verb, l.info().System
	call.Table = cmp.Or(call.Table, l.config.table)
	call.Nested = joins && l.carriesOpen(ctx)
	t := &trace{tracer: l.config.tracer, ctx: l.config.tracer.Asked(ctx, call)}
	return t.ctx, t
}

// answer says how the wait ended, unless that has been said.
func (t *trace) answer(err error) {
	if t == nil || t.answered.Swap(true) {
		return
	}
	if err != nil { // nothing was granted that could end
		t.ended.Store(true)
	}
	t.tracer.Answered(t.ctx, err)
}

// end says that the lock is not held any more, unless that has been said.
func (t *trace) end(err error) {
	if t != nil && !t.ended.Swap(true) {
		t.tracer.Ended(t.ctx, err)
	}
}

// unlessReleased is nil for a lock that was released with the Do in which it was taken, else err.
func unlessReleased(err error) error {
	if errors.Is(err, ErrNotHeld) && !errors.Is(err, ErrLost) {
		return nil
	}
	return err
}

// ErrPanicked is what a Tracer is told of a Do whose work panicked, or called runtime.Goexit. Of
// calls, only [Combined.Do] returns it, when another caller's goroutine has panicked.
var ErrPanicked = errors.New("the work panicked")

// traced runs a Do. Its lock is granted when its work begins.
func traced[Tx any](t *trace, work txFunc[Tx], run func(work txFunc[Tx]) error) error {
	if t == nil {
		return run(work)
	}
	failed := ErrPanicked
	defer func() {
		t.answer(failed)
		t.end(failed)
	}()
	failed = run(func(ctx context.Context, tx Tx) error {
		t.answer(nil)
		return work(ctx, tx)
	})
	return failed
}
