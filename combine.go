package txlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/txlock/txlock/internal/combine"
)

// Combined does the work of many callers at once: their orders share one transaction, one lock and
// one commit. It is safe for use by many goroutines, and a program needs one for each kind of work:
// what is not called on the same Combined is not combined. Combine and AtMost make one.
type Combined[Tx, In, Out any] struct {
	lock  func(in []In) *Mutex[Tx]
	work  func(ctx context.Context, tx Tx, in []In) ([]Result[Out], error)
	err   error // a bad argument
	queue *combine.Queue[In, Result[Out]]
}

// Result is what work says of one order.
type Result[T any] struct {
	Value T
	// Err is the error of this order alone. The others, and what work wrote, are committed all the
	// same: work must have left out, or undone, what this order would have written.
	Err error
}

const defaultBatch = 256

// Combine returns work that is done in batches: what is called while one batch is under way is done
// together in the next. Where many callers meet in one row, that saves all but one of their locks,
// round trips and commits. It pays when work is written for many: in a few set-based statements,
// not in a loop.
//
// lock names what a batch locks: the rows of its orders, or one key for all. It sends nothing, and
// may be called for orders that are not worked on after all. One batch waits at a time, and all
// later orders behind it, also for rows that are free. So set Within in lock, which limits the wait
// of a batch, or give the context of each Do a deadline.
//
// work gets the orders of a batch in the order in which they came, and returns one Result for each,
// in the same order. It runs as the work of a [Mutex.Do], in the goroutine of one of the callers.
// ctx ends with the lock or the Locker, and has nothing of the callers' contexts. work must not end
// the transaction, nor change anything else that a rollback leaves as it is: when it fails, it is
// called again with a part of the orders.
//
// Errors say what became of an order:
//
//   - work fails, or the commit is refused: what the batch did is rolled back, and its halves are
//     tried one after the other, down to a single order, which alone gets the error. So is a batch
//     that names no valid Mutex, or a row that does not exist or that the server refuses to lock,
//     for a value that does not suit the column, say, or that meets a deadlock on the way to its
//     lock.
//   - [ErrLost]: the session was lost. All of the batch get it, without another try, unless the
//     lock has a [Mutex.Retry], with which all of the batch run again.
//   - Any other error of the wait for the lock is for all of the batch, and so is that of another
//     number of results than orders. Nothing is committed.
//   - [ErrPanicked]: lock or work panicked, or called runtime.Goexit, or the client library or a
//     Tracer did. It goes on in the goroutine of one caller, the others of the batch get this
//     error, and nothing is committed.
func Combine[Tx, In, Out any](lock func(in []In) *Mutex[Tx],
	work func(ctx context.Context, tx Tx, in []In) ([]Result[Out], error),
) *Combined[Tx, In, Out] {
	c := &Combined[Tx, In, Out]{lock: lock, work: work}
	switch {
	case lock == nil:
		c.err = errors.New("nil lock")
	case work == nil:
		c.err = errors.New("nil work")
	}
	return c.AtMost(defaultBatch)
}

// AtMost returns a copy that has a queue of its own, with batches of at most n orders, 256 by
// default. n is at least 1.
func (c *Combined[Tx, In, Out]) AtMost(n int) *Combined[Tx, In, Out] {
	limited := &Combined[Tx, In, Out]{lock: c.lock, work: c.work, err: c.err}
	if n < 1 && c.err == nil {
		limited.err = fmt.Errorf("AtMost(%d): a batch has at least one order", n)
	}
	limited.queue = combine.New(combine.Config[In, Result[Out]]{
		Most: n, Begin: limited.begin, Left: leftQueue, Pause: jitter,
		Panicked: fmt.Errorf("txlock: Combine: naming the lock in another caller's goroutine: %w", ErrPanicked),
	})
	return limited
}

// Do has in done with the next batch, and returns the Result that work gave for it, once that is
// committed. Batches are taken in the order in which Do was called. A call that finds nobody at
// work begins at once, alone. Behind a batch of several orders the next one gathers until as many
// callers are there, for a 32nd of the time that the last one took, and 0.25 ms at most.
//
// ctx ends the wait in the queue and for the lock: the order is not done, and the error is
// [ErrNotAcquired] and that of ctx. Once work has begun, Do waits for the outcome.
//
// In the work of another Do of the Locker, in is done there and alone, in a savepoint, with the
// context of the caller: see [Mutex.Do]. In a session that a Lock began, it is [ErrInsideLock].
func (c *Combined[Tx, In, Out]) Do(ctx context.Context, in In) (out Out, err error) {
	if c.err != nil {
		return out, fmt.Errorf("txlock: Combine: %w", c.err)
	}
	if ctx.Err() != nil {
		return out, leftQueue(ctx)
	}
	if ownershipIn(ctx) != nil { // which Locker's, only lock can tell
		if m := c.lock([]In{in}); m != nil && m.locker.carriesOpen(ctx) {
			return c.nest(ctx, m, in)
		}
	}
	result, err := c.queue.Do(ctx, in)
	if err != nil {
		return out, err
	}
	return result.Value, result.Err
}

// nest does one order in the session that ctx carries.
func (c *Combined[Tx, In, Out]) nest(ctx context.Context, m *Mutex[Tx], in In) (out Out, err error) {
	var result Result[Out]
	err = m.do(ctx, combineVerb, false, func(ctx context.Context, tx Tx) error {
		results, err := c.work(ctx, tx, []In{in})
		if err == nil {
			err = oneEach(len(results), 1)
		}
		if err == nil {
			result = results[0]
		}
		return err
	})
	if err != nil {
		return out, err
	}
	return result.Value, result.Err
}

// combineVerb is what errors and a Tracer call a batch.
const combineVerb = "Combine"

// oneEach checks the number of results of work.
func oneEach(results, orders int) error {
	if results == orders {
		return nil
	}
	return fmt.Errorf("txlock: Combine: the work returned %d results for %d orders, so nothing is committed", results,
		orders)
}

// leftQueue is the error of an order whose context has ended before work began.
func leftQueue(ctx context.Context) error {
	return fmt.Errorf("txlock: Combine: %w: %w", ErrNotAcquired, ctx.Err())
}
