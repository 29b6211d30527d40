package txlock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/txlock/txlock/dialects"
)

// Combined does the work of many callers at once: their orders share one transaction, one lock and
// one commit. Many goroutines may use it. What is not called on the same Combined is not combined.
type Combined[Tx, In, Out any] struct {
	lock func(in []In) *Mutex[Tx]
	work func(ctx context.Context, tx Tx, in []In) ([]Result[Out], error)
	most int   // orders of a batch
	err  error // a bad argument

	mu     sync.Mutex
	orders []*order[In, Out] // that no batch has taken, in the order of arrival
	led    bool              // a goroutine makes batches of them
}

// Result is what work says of one order. Err is the error of this order alone: the others, and what
// work wrote, are committed all the same.
type Result[T any] struct {
	Value T
	Err   error
}

// Combine returns work that is done in batches: what is called while one batch is under way is done
// together in the next. lock names what a batch locks, and sends nothing. work runs as that of a
// [Mutex.Do], in a goroutine of its own, with a context that ends with the lock or the Locker. It
// returns one Result for each order, in the same order. After an error, the halves of the batch are
// tried, down to a single order, which alone gets the error: work must be fit to run again. All of
// a batch get [ErrLost], unless the lock has a [Mutex.Retry], and [ErrPanicked]. docs/kinds.md says
// more of errors. Set Within in lock, or a deadline for each Do: later orders wait behind a batch.
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
	return c.AtMost(256)
}

// AtMost returns a copy that has a queue of its own, with batches of at most n orders, 256 by
// default. n is at least 1.
func (c *Combined[Tx, In, Out]) AtMost(n int) *Combined[Tx, In, Out] {
	limited := &Combined[Tx, In, Out]{lock: c.lock, work: c.work, err: c.err, most: n}
	if n < 1 && c.err == nil {
		limited.err = fmt.Errorf("AtMost(%d): a batch has at least one order", n)
	}
	return limited
}

// Do has in done with the next batch, and returns the Result that work gave for it, once that is
// committed. Batches are taken in the order in which Do was called. A call that finds nobody at
// work begins at once, alone. ctx ends the wait in the queue and for the lock: the order is not
// done, and the error is [ErrNotAcquired] and that of ctx. Once work has begun, Do waits for it. In
// the work of another Do of the Locker, in is done there and alone, in a savepoint, with ctx: see
// [Mutex.Do]. In a session that a Lock began, it is [ErrInsideLock].
func (c *Combined[Tx, In, Out]) Do(ctx context.Context, in In) (out Out, err error) {
	if c.err == nil && c.lock == nil {
		return out, errors.New("txlock: Combine: a zero Combined: Combine makes one")
	}
	if c.err != nil {
		return out, fmt.Errorf("txlock: Combine: %w", c.err)
	}
	if ctx.Err() != nil {
		return out, leftQueue(ctx)
	}
	o := &order[In, Out]{ctx: ctx, in: in, done: make(chan struct{})}
	if ownershipIn(ctx) != nil { // which Locker's, only lock can tell
		if m := c.lock([]In{in}); m != nil && m.locker.carriesOpen(ctx) {
			err = m.do(ctx, combineVerb, false, func(ctx context.Context, tx Tx) error {
				return c.perform(ctx, tx, []*order[In, Out]{o})
			})
			if err != nil {
				return out, err
			}
			return o.result.Value, o.result.Err
		}
	}
	c.enqueue(o)
	select {
	case <-o.done:
	case <-ctx.Done():
		if c.leave(o) {
			return out, leftQueue(ctx)
		}
		<-o.done
	}
	if o.goOn != nil {
		o.goOn()
	}
	if o.err != nil {
		return out, o.err
	}
	return o.result.Value, o.result.Err
}

// combineVerb is what errors and a Tracer call a batch.
const combineVerb = "Combine"

// errMiscounted is another number of results than orders, for which no order is to blame.
var errMiscounted = errors.New("so nothing is committed")

// perform has the work done, and notes its results.
func (c *Combined[Tx, In, Out]) perform(ctx context.Context, tx Tx, orders []*order[In, Out]) error {
	results, err := c.work(ctx, tx, inOf(orders))
	if err == nil && len(results) != len(orders) {
		err = fmt.Errorf("txlock: Combine: the work returned %d results for %d orders, %w", len(results), len(orders),
			errMiscounted)
	}
	for i := range results[:min(len(results), len(orders))] {
		orders[i].result = results[i]
	}
	return err
}

// leftQueue is the error of an order whose context has ended before work began.
func leftQueue(ctx context.Context) error {
	return fmt.Errorf("txlock: Combine: %w: %w", ErrNotAcquired, ctx.Err())
}

// order is what one caller wants done. It waits in the queue, and then in a batch that waits for
// its lock. Its caller may leave, unless work has it.
type order[In, Out any] struct {
	ctx  context.Context
	in   In
	done chan struct{} // closed when the following three are set

	result Result[Out]
	err    error
	goOn   func() // a panic, which goes on in the goroutine of the caller

	// Guarded by the mutex of the Combined.
	batch *batch[In, Out] // that waits with it for the lock
	state orderState
}

type orderState int

const (
	waiting orderState = iota // its caller may leave
	bound                     // work has it
	over                      // its caller has left, or has its outcome
)

// batch is orders that wait for their lock, and are worked on, together.
type batch[In, Out any] struct {
	orders  []*order[In, Out]
	ctx     context.Context // of the wait and the work
	cancel  context.CancelFunc
	present int // orders that have not left; guarded by the mutex of the Combined

	err   error // of the Do; nil: it is committed
	halve bool  // one order may be to blame
	goOn  func()
}

// enqueue puts an order into the queue, and has somebody make batches of it.
func (c *Combined[Tx, In, Out]) enqueue(o *order[In, Out]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orders = append(c.orders, o)
	if !c.led {
		c.led = true
		go c.lead()
	}
}

// leave takes an order away, unless work has it. The last one to leave a batch ends its wait.
func (c *Combined[Tx, In, Out]) leave(o *order[In, Out]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.state != waiting {
		return false
	}
	o.state = over
	if o.batch == nil {
		c.orders = slices.DeleteFunc(c.orders, func(other *order[In, Out]) bool { return other == o })
	} else if o.batch.present--; o.batch.present == 0 {
		o.batch.cancel()
	}
	return true
}

// lead works on batches until nobody waits.
func (c *Combined[Tx, In, Out]) lead() {
	for orders := c.take(); len(orders) > 0; orders = c.take() {
		begun := time.Now()
		if c.run(orders) && len(orders) > 1 {
			c.gather(len(orders), min(time.Since(begun)/32, gatherAtMost))
		}
	}
}

// take is the next batch. Without one nobody leads any more.
func (c *Combined[Tx, In, Out]) take() (orders []*order[In, Out]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(c.most, len(c.orders))
	orders, c.led = slices.Clone(c.orders[:n]), n > 0
	c.orders = slices.Delete(c.orders, 0, n)
	return orders
}

// gatherAtMost is as long as callers in a loop need to come again, also beside busy loops, and too
// short to show in anybody's p50.
const gatherAtMost = 250 * time.Microsecond

// gather has the queue fill again for a moment, behind a batch that had company: its callers may be
// about to come again. Without it the first of them would go on alone, and batches would have one
// order and all others in turns. It yields instead of sleeping: an idle process wakes up a
// millisecond late.
func (c *Combined[Tx, In, Out]) gather(callers int, patience time.Duration) {
	queued := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.orders)
	}
	callers = min(callers+queued(), c.most)
	for end := time.Now().Add(patience); queued() < callers && time.Now().Before(end); {
		runtime.Gosched()
	}
}

// run works on orders, and hands out what has become of them. After an error that one of them may
// be to blame for it works on the halves, also when the culprit has left meanwhile. It tells
// whether all are committed together. The work has a goroutine of its own, which it may end.
func (c *Combined[Tx, In, Out]) run(orders []*order[In, Out]) (committed bool) {
	b := &batch[In, Out]{orders: orders}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	defer b.cancel()
	c.turn(b, waiting)
	if len(b.orders) == 0 {
		return false
	}
	attempted := make(chan struct{})
	go func() {
		defer close(attempted)
		c.attempt(b)
	}()
	<-attempted
	n := len(b.orders)
	if b.err != nil && b.halve && n > 1 {
		c.turn(b, waiting)
		left, right := b.orders[:min((n+1)/2, len(b.orders))], b.orders[min((n+1)/2, len(b.orders)):]
		c.run(left)
		c.run(right)
		return false
	}
	c.turn(b, bound)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range b.orders { // a panic goes on in the goroutine of the first
		o.finish(b.err, b.goOn)
		b.goOn = nil
	}
	return b.err == nil
}

// turn changes the state of the orders of a batch, and takes out those that are over. So is one
// whose context has ended, unless work has it: its caller asks once whether it may leave, and may
// have asked while work had it.
func (c *Combined[Tx, In, Out]) turn(b *batch[In, Out], to orderState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.orders = slices.DeleteFunc(b.orders, func(o *order[In, Out]) bool {
		if o.state != over && (o.state == waiting || to == waiting) && o.ctx.Err() != nil {
			o.finish(leftQueue(o.ctx), nil)
		}
		if o.state != over {
			o.state, o.batch = to, b
		}
		return o.state == over
	})
	b.present = len(b.orders)
}

// finish gives an order its outcome, with the mutex held.
func (o *order[In, Out]) finish(err error, goOn func()) {
	o.state, o.err, o.goOn = over, err, goOn
	close(o.done)
}

// attempt does the work of a batch under its lock.
func (c *Combined[Tx, In, Out]) attempt(b *batch[In, Out]) {
	var m *Mutex[Tx]
	b.err = fmt.Errorf("txlock: Combine: in another caller's order: %w", ErrPanicked)
	returned := false
	defer func() {
		if !returned {
			b.halve = false
			b.goOn = panicAgain(m, recover())
		}
	}()
	if m = c.lock(inOf(b.orders)); m != nil {
		b.err, b.halve = c.do(b, m)
	} else {
		b.err, b.halve = errors.New("txlock: Combine: lock returned a nil Mutex"), true
	}
	returned = true
}

// do tells besides its error whether one order may be to blame for it.
func (c *Combined[Tx, In, Out]) do(b *batch[In, Out], m *Mutex[Tx]) (err error, halve bool) {
	var begun bool // in the last attempt
	var failed error
	panicked := b.err
	reporting := *m
	reporting.outcome = &b.err
	err = reporting.retry(b.ctx, func(m *Mutex[Tx]) error {
		begun, failed, b.err = false, nil, panicked
		return m.attemptDo(b.ctx, combineVerb, false, func(ctx context.Context, tx Tx) error {
			begun = true
			c.turn(b, bound)
			if len(b.orders) == 0 { // it was granted just as the last one left
				return context.Canceled
			}
			failed = c.perform(ctx, tx, b.orders)
			return failed
		})
	})
	if begun {
		lost := errors.Is(err, ErrLost) && !errors.Is(failed, ErrLost)
		return err, !errors.Is(failed, errMiscounted) && !lost
	}
	var refused dialects.RefusedError // a lock may fail for one of the rows that it names
	return err, errors.Is(err, m.err) || errors.Is(err, ErrNoRow) || errors.Is(err, ErrDeadlock) ||
		errors.As(err, &refused)
}

func inOf[In, Out any](orders []*order[In, Out]) []In {
	in := make([]In, len(orders))
	for i, o := range orders {
		in[i] = o.in
	}
	return in
}

// panicAgain goes on with a panic, or a runtime.Goexit, whose value is nil. The log has it as well:
// the stack is that of the batch, and its callers may all have left.
func panicAgain[Tx any](m *Mutex[Tx], value any) func() {
	if m != nil && m.locker != nil {
		m.locker.config.logger.Error("txlock: a panic in a batch, or while it waited for its lock", "lock",
			m.target.String(), "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
	}
	return func() {
		if value == nil {
			runtime.Goexit()
		}
		panic(value)
	}
}
