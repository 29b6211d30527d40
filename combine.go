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
// one commit. Many goroutines may use it.
type Combined[Tx, In, Out any] struct {
	lock func(in []In) *Mutex[Tx]
	work func(ctx context.Context, tx Tx, in []In) ([]Result[Out], error)
	most int // orders of a batch

	mu    sync.Mutex
	queue batch[In, Out] // orders that no batch has taken, in the order of arrival
	led   bool           // a goroutine makes batches of them
}

// Result is what work says of one order. Err is the error of this order alone: the others, and what
// work wrote, are committed all the same.
type Result[T any] struct {
	Value T
	Err   error
}

// Combine returns work that is done in batches: what is called during one is done together in the
// next. lock names what a batch locks; set Within in it, for later orders wait behind. work runs as
// that of a [Mutex.Do], in its own goroutine, with a context that ends with the lock or the Locker,
// and returns a Result for each order, in order. After an error the halves of the batch are tried,
// down to the one order that gets it: work must be fit to run again. All get [ErrLost], unless the
// lock has a [Mutex.Retry], and [ErrPanicked].
func Combine[Tx, In, Out any](lock func(in []In) *Mutex[Tx],
	work func(ctx context.Context, tx Tx, in []In) ([]Result[Out], error),
) *Combined[Tx, In, Out] {
	return &Combined[Tx, In, Out]{lock: lock, work: work, most: 256}
}

// AtMost returns a copy that has a queue of its own, with batches of at most n orders, 256 by
// default. n is at least 1.
func (c *Combined[Tx, In, Out]) AtMost(n int) *Combined[Tx, In, Out] {
	return &Combined[Tx, In, Out]{lock: c.lock, work: c.work, most: n}
}

// Do has in done with the next batch, and returns the Result that work gave for it, once that is
// committed. Batches are taken in the order of the calls; one that finds nobody at work begins at
// once, alone. ctx ends the wait in the queue and for the lock, with [ErrNotAcquired] and its
// error: then the order is not done. Once work has begun, Do waits for it. In the work of another
// Do of the Locker, in is done there and alone, in a savepoint, with ctx. In a session that a Lock
// began, it is [ErrInsideLock].
func (c *Combined[Tx, In, Out]) Do(ctx context.Context, in In) (out Out, err error) {
	switch {
	case c.lock == nil, c.work == nil:
		return out, errors.New("txlock: Combine: nil lock or nil work")
	case c.most < 1:
		return out, fmt.Errorf("txlock: Combine: AtMost(%d): a batch has at least one order", c.most)
	}
	o := &order[In, Out]{ctx: ctx, in: in, done: make(chan struct{})}
	var m *Mutex[Tx]
	if ownershipIn(ctx) != nil { // which Locker's, only lock can tell
		m = c.lock([]In{in})
	}
	if m == nil || !m.locker.carriesOpen(ctx) {
		c.await(o)
	} else {
		o.err = m.do(ctx, "Combine", false, func(ctx context.Context, tx Tx) error {
			return c.perform(ctx, tx, []*order[In, Out]{o})
		})
	}
	if o.goOn != nil {
		o.goOn()
	}
	if o.err != nil {
		return out, o.err
	}
	return o.result.Value, o.result.Err
}

// errMiscounted is another number of results than orders, for which no order is to blame.
var errMiscounted = errors.New("so nothing is committed")

// perform has the work done, and notes its results.
func (c *Combined[Tx, In, Out]) perform(ctx context.Context, tx Tx, orders []*order[In, Out]) error {
	results, err := c.work(ctx, tx, inOf(orders))
	if err == nil && len(results) != len(orders) {
		err = fmt.Errorf("txlock: Combine: the work returned %d results for %d orders, %w", len(results), len(orders),
			errMiscounted)
	}
	for i := 0; err == nil && i < len(orders); i++ {
		orders[i].result = results[i]
	}
	return err
}

// order is what one caller wants done. Its caller may leave, unless work has it.
type order[In, Out any] struct {
	ctx   context.Context
	in    In
	batch *batch[In, Out] // that its caller may leave; nil: none; guarded by the mutex of the Combined

	done   chan struct{} // closed when the following are set
	result Result[Out]
	err    error
	goOn   func() // a panic, which goes on in the goroutine of the caller
}

// batch is orders that wait for their lock, and are worked on, together. The queue is one, too.
type batch[In, Out any] struct {
	orders []*order[In, Out]  // guarded by the mutex of the Combined
	in     []In               // of all that have not left before
	ctx    context.Context    // of the wait and the work; ends when all have left
	cancel context.CancelFunc // nil: of the queue
	err    error              // of the Do; nil: it is committed
	halve  bool               // one order of several may be to blame for err
	goOn   func()
}

// await puts an order into the queue, has somebody make batches of it, and waits for its outcome.
func (c *Combined[Tx, In, Out]) await(o *order[In, Out]) {
	c.mu.Lock()
	o.batch = &c.queue
	c.queue.orders = append(c.queue.orders, o)
	if !c.led {
		c.led = true
		go c.lead()
	}
	c.mu.Unlock()
	select {
	case <-o.done:
		return
	case <-o.ctx.Done():
	}
	c.mu.Lock()
	if b := o.batch; b != nil { // else work has it
		if b.orders = move(b.orders, b); len(b.orders) == 0 && b.cancel != nil {
			b.cancel()
		}
	}
	c.mu.Unlock()
	<-o.done
}

// move has orders wait in a batch, or with nil has work have them, with the mutex held. One whose
// context has ended goes, unless work has it and keeps it: its caller asks once whether it may
// leave, and may have asked while work had it.
func move[In, Out any](orders []*order[In, Out], to *batch[In, Out]) []*order[In, Out] {
	return slices.DeleteFunc(slices.Clone(orders), func(o *order[In, Out]) bool {
		goes := (o.batch != nil || to != nil) && o.ctx.Err() != nil
		if o.batch = to; goes {
			o.batch, o.err = nil, fmt.Errorf("txlock: Combine: %w: %w", ErrNotAcquired, o.ctx.Err())
			close(o.done)
		}
		return goes
	})
}

// batchOf is called with the mutex held.
func batchOf[In, Out any](orders []*order[In, Out]) *batch[In, Out] {
	b := &batch[In, Out]{}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.orders = move(orders, b)
	b.in = inOf(b.orders)
	return b
}

// lead works on batches until nobody waits.
func (c *Combined[Tx, In, Out]) lead() {
	for n := 1; n > 0; {
		begun := time.Now()
		c.mu.Lock()
		n = min(c.most, len(c.queue.orders))
		b := batchOf(c.queue.orders[:n])
		c.queue.orders, c.led = slices.Delete(c.queue.orders, 0, n), n > 0
		c.mu.Unlock()
		if c.run(b) && n > 1 {
			c.gather(n, min(time.Since(begun)/32, 250*time.Microsecond))
		}
	}
}

// gather has the queue fill again, for as long as callers in a loop need: else the first of them
// would go on alone, and batches would have one order and all others in turns. It yields instead of
// sleeping: an idle process wakes up a millisecond late.
func (c *Combined[Tx, In, Out]) gather(callers int, patience time.Duration) {
	queued := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.queue.orders)
	}
	callers = min(callers+queued(), c.most)
	for end := time.Now().Add(patience); queued() < callers && time.Now().Before(end); {
		runtime.Gosched()
	}
}

// run works on a batch, in a goroutine that work may end, and hands out what has become of it.
// After an error that one order may be to blame for, it works on the halves, also if that one left.
func (c *Combined[Tx, In, Out]) run(b *batch[In, Out]) (committed bool) {
	defer b.cancel()
	if len(b.in) == 0 || b.ctx.Err() != nil {
		return false
	}
	var attempted sync.WaitGroup
	attempted.Go(func() { c.attempt(b) })
	attempted.Wait()
	c.mu.Lock()
	if n := (len(b.orders) + 1) / 2; b.halve {
		left, right := batchOf(b.orders[:n]), batchOf(b.orders[n:])
		c.mu.Unlock()
		c.run(left)
		c.run(right)
		return false
	}
	defer c.mu.Unlock()
	for _, o := range b.orders { // a panic goes on in the goroutine of the first
		o.batch, o.err, o.goOn = nil, b.err, b.goOn
		b.goOn = nil
		close(o.done)
	}
	return b.err == nil
}

// attempt does the work of a batch under its lock. Of a panic the log tells as well: the stack is
// that of the batch, and its callers may all have left.
func (c *Combined[Tx, In, Out]) attempt(b *batch[In, Out]) {
	const verb = "Combine"
	var m *Mutex[Tx]
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover() // nil: it is a runtime.Goexit
		if b.goOn = runtime.Goexit; value != nil {
			b.goOn = func() { panic(value) }
		}
		if m != nil && m.locker != nil {
			m.locker.config.logger.Error("txlock: a panic in a batch, or while it waited for its lock", "lock",
				m.target.String(), "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
		}
	}()
	panicked := fmt.Errorf("txlock: Combine: in another caller's order: %w", ErrPanicked)
	b.err = panicked
	begun, asked := false, len(b.in)
	work := func(ctx context.Context, tx Tx) error {
		c.mu.Lock()
		b.orders = move(b.orders, nil)
		c.mu.Unlock()
		if begun, asked = true, len(b.orders); asked == 0 { // it was granted just as the last one left
			return context.Canceled
		}
		return c.perform(ctx, tx, b.orders)
	}
	err := errors.New("txlock: Combine: lock returned a nil Mutex")
	if m = c.lock(b.in); m != nil {
		batched := *m
		batched.untilClose = true
		err = batched.attempts(b.ctx, verb, work, func(ctx context.Context, m *Mutex[Tx], work txFunc[Tx]) error {
			begun, b.err = false, panicked
			b.err = m.acquireAndPerform(ctx, verb, false, work) // also if the Tracer panics then
			return b.err
		})
	}
	switch {
	case err == nil || asked < 2:
	case begun:
		b.halve = !errors.Is(err, ErrLost) && !errors.Is(err, errMiscounted)
	default: // a lock may fail for one of the rows that it names
		b.halve = m == nil || errors.Is(err, m.err) || errors.Is(err, ErrNoRow) || errors.Is(err, ErrDeadlock) ||
			errors.As(err, new(dialects.RefusedError))
	}
	b.err, returned = err, true
}

func inOf[In, Out any](orders []*order[In, Out]) []In {
	in := make([]In, len(orders))
	for i, o := range orders {
		in[i] = o.in
	}
	return in
}
