package txlock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/combine"
)

// batch is one batch of a Combined, as internal/combine knows it: it waits for a lock, and its work
// is that of a Do.
type batch[Tx, In, Out any] struct {
	work  func(ctx context.Context, tx Tx, in []In) ([]Result[Out], error)
	ctx   context.Context // of the wait and the work
	mutex *Mutex[Tx]
	trace *trace
	grant grant[Tx]
}

// begin names the lock of a batch.
func (c *Combined[Tx, In, Out]) begin(ctx context.Context, in []In, attempt int) (combine.Work[In, Result[Out]],
	error,
) {
	m := c.lock(in)
	if m == nil {
		return nil, errors.New("txlock: Combine: lock returned a nil Mutex")
	}
	m = m.inAttempt(attempt)
	ctx, trace := m.startTrace(ctx, combineVerb, false)
	return &batch[Tx, In, Out]{work: c.work, ctx: ctx, mutex: m, trace: trace}, nil
}

// Await waits for the lock.
func (b *batch[Tx, In, Out]) Await() (next combine.Next, err error) {
	if b.grant, err = b.mutex.acquireUntilClose(b.ctx, true); err == nil {
		return next, nil
	}
	switch {
	case b.mutex.mayRunAgain(err):
		next = combine.Again
	case errors.Is(err, b.mutex.err) || oneMayBeToBlame(err):
		next = combine.Halve
	}
	err = b.mutex.wrap(combineVerb, err)
	b.trace.answer(err)
	return next, err
}

// oneMayBeToBlame tells whether a lock may have failed for one of the rows that it names.
func oneMayBeToBlame(err error) bool {
	var refused dialects.RefusedError
	return errors.Is(err, ErrNoRow) || errors.Is(err, ErrDeadlock) || errors.As(err, &refused)
}

// Abandon gives back a lock that nobody wants any more.
func (b *batch[Tx, In, Out]) Abandon() {
	_ = b.grant.finish(b.ctx, false)
	b.trace.answer(b.mutex.wrap(combineVerb, fmt.Errorf("%w: %w", ErrNotAcquired, context.Canceled)))
}

// Panicked is the end of a wait in which the client library or a Tracer panicked. The log has it
// too: the stack is that of the wait, and the callers may all have left.
func (b *batch[Tx, In, Out]) Panicked(value any) (goOn func(), err error) {
	b.mutex.locker.config.logger.Error("txlock: a panic while a batch waited for its lock", "lock",
		b.mutex.target.String(), "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
	err = b.mutex.wrap(combineVerb, fmt.Errorf("waiting for the lock in another caller's goroutine: %w", ErrPanicked))
	return func() {
		defer b.trace.answer(err)
		if value == nil {
			runtime.Goexit()
		}
		panic(value)
	}, err
}

// Run does the work under the lock, and commits.
func (b *batch[Tx, In, Out]) Run(in []In, outcome *combine.Outcome[Result[Out]]) {
	final := false // another try would not help, or might do twice what is done
	work := func(ctx context.Context, tx Tx) (err error) {
		if outcome.Results, err = b.work(ctx, tx, in); err == nil {
			err = oneEach(len(outcome.Results), len(in))
			final = err != nil
		}
		return err
	}
	outcome.Err = b.mutex.wrap(combineVerb, fmt.Errorf("%w in another caller's goroutine", ErrPanicked))
	_ = traced(b.trace, work, func(work func(context.Context, Tx) error) error {
		failed, err := b.grant.performAndEnd(b.ctx, work)
		final = final || errors.Is(err, ErrLost)
		outcome.Err = joinErrors(failed, b.mutex.wrap(combineVerb, err))
		return outcome.Err
	})
	switch {
	case b.mutex.mayRunAgain(outcome.Err):
		outcome.Next = combine.Again
	case !final:
		outcome.Next = combine.Halve
	}
}
