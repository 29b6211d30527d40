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
// one commit. It is safe for use by many goroutines, and a program needs one for each kind of work:
// what is not called on the same Combined is not combined. Combine and AtMost make one.
type Combined[Tx, In, Out any] struct {
	lock func(in []In) *Mutex[Tx]
	work func(ctx context.Context, tx Tx, in []In) ([]Result[Out], error)
	most int   // orders of a batch
	err  error // a bad argument

	mu     sync.Mutex
	orders []*order[In, Out] // that no batch has taken, in the order of arrival
	gone   int               // of them have left
	led    bool              // a goroutine makes batches of them
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
// in the same order. It runs as the work of a [Mutex.Do], in a goroutine of its own. ctx ends with
// the lock or the Locker, and has nothing of the callers' contexts. work must not end the
// transaction, nor change anything else that a rollback leaves as it is: when it fails, it is
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
//     Tracer did. The log has the stack. It goes on in the goroutine of one caller, the others of
//     the batch get this error, and nothing is committed.
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
	limited := &Combined[Tx, In, Out]{lock: c.lock, work: c.work, err: c.err, most: n}
	if n < 1 && c.err == nil {
		limited.err = fmt.Errorf("AtMost(%d): a batch has at least one order", n)
	}
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
	o := &order[In, Out]{ctx: ctx, in: in, most: c.most, done: make(chan struct{})}
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
	most  int             // orders in its batch, with it; fewer after a failure
	batch *batch[In, Out] // that has taken it from the queue
	state orderState
}

type orderState int

const (
	waiting orderState = iota // its caller may leave
	bound                     // work has it
	over                      // its caller has left, or has its outcome
)

func (o *order[In, Out]) isOver() bool { return o.state == over }

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
	if b := o.batch; b != nil {
		if b.present--; b.present == 0 {
			b.cancel()
		}
	} else if c.gone++; c.gone > len(c.orders)/2 { // so that leaving costs no search
		c.compact()
	}
	return true
}

// compact clears the queue of the orders that are over, with the mutex held.
func (c *Combined[Tx, In, Out]) compact() {
	c.orders, c.gone = slices.DeleteFunc(c.orders, (*order[In, Out]).isOver), 0
}

// lead works on batches until nobody waits. When work has ended this goroutine, by runtime.Goexit,
// another one goes on: so nobody is forgotten.
func (c *Combined[Tx, In, Out]) lead() {
	returned := false
	defer func() {
		if !returned {
			go c.lead()
		}
	}()
	for b := c.take(); b != nil; b = c.take() {
		begun := time.Now()
		c.run(b)
		if len(b.orders) > 1 && b.err == nil {
			c.gather(len(b.orders), min(time.Since(begun)/gatherPart, gatherAtMost))
		}
	}
	returned = true
}

// take is the next batch. Without one nobody leads any more.
func (c *Combined[Tx, In, Out]) take() *batch[In, Out] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compact()
	if c.led = len(c.orders) > 0; !c.led {
		return nil
	}
	most := c.orders[0].most
	b := &batch[In, Out]{}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	for _, o := range c.orders[:min(most, len(c.orders))] {
		if o.most != most { // what is tried again stays apart from what follows
			break
		}
		o.batch = b
		b.present++
	}
	b.orders = slices.Clone(c.orders[:b.present])
	c.orders = slices.Delete(c.orders, 0, b.present)
	return b
}

// A batch gathers for a 32nd of what the last one took, and for gatherAtMost: as long as callers in
// a loop need to come again, also beside busy loops, and too short to show in anybody's p50.
const (
	gatherPart   = 32
	gatherAtMost = 250 * time.Microsecond
)

// gather has the queue fill again for a moment, behind a batch that had company: its callers may be
// about to come again. Without it the first of them would go on alone, and batches would have one
// order and all others in turns. It yields instead of sleeping: an idle process wakes up a
// millisecond late.
func (c *Combined[Tx, In, Out]) gather(callers int, patience time.Duration) {
	queued := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.orders) - c.gone
	}
	callers = min(callers+queued(), c.most)
	for end := time.Now().Add(patience); queued() < callers && time.Now().Before(end); {
		runtime.Gosched()
	}
}

// run works on a batch, and hands out what has become of it, also when runtime.Goexit ends it.
// After an error that one order may be to blame for, its halves go to the front of the queue. The
// culprit may have left, and the others are tried again all the same.
func (c *Combined[Tx, In, Out]) run(b *batch[In, Out]) {
	n := len(b.orders)
	defer func() {
		b.cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		if b.err != nil && b.halve && n > 1 {
			c.turn(b, waiting)
			for _, o := range b.orders {
				o.most, o.batch = (n+1)/2, nil
			}
			c.orders = slices.Insert(c.orders, 0, b.orders...)
			return
		}
		c.turn(b, bound)
		for _, o := range b.orders { // a panic goes on in the goroutine of the first
			o.finish(b.err, b.goOn)
			b.goOn = nil
		}
	}()
	c.attempt(b)
}

// turn changes the state of the orders of a batch, with the mutex held, and takes out those that
// are over. So is one whose context has ended, unless work has it: its caller asks once whether it
// may leave, and may have asked while work had it.
func (c *Combined[Tx, In, Out]) turn(b *batch[In, Out], to orderState) {
	b.orders = slices.DeleteFunc(b.orders, func(o *order[In, Out]) bool {
		if o.state != over && (o.state == waiting || to == waiting) && o.ctx.Err() != nil {
			o.finish(leftQueue(o.ctx), nil)
		}
		if o.state != over {
			o.state = to
		}
		return o.state == over
	})
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
	if named := c.lock(inOf(b.orders)); named != nil {
		m = named.reporting(&b.err)
		b.err, b.halve = c.do(b, m)
	} else {
		b.err, b.halve = errors.New("txlock: Combine: lock returned a nil Mutex"), true
	}
	returned = true
}

// do tells besides its error whether one order may be to blame for it.
func (c *Combined[Tx, In, Out]) do(b *batch[In, Out], m *Mutex[Tx]) (err error, halve bool) {
	var begun, miscounted bool // in the last attempt
	var failed error
	work := func(ctx context.Context, tx Tx) error {
		begun = true
		c.mu.Lock()
		c.turn(b, bound)
		c.mu.Unlock()
		if len(b.orders) == 0 { // it was granted just as the last one left
			return context.Canceled
		}
		results, err := c.work(ctx, tx, inOf(b.orders))
		if failed = err; err == nil {
			err = oneEach(len(results), len(b.orders))
			miscounted = err != nil
		}
		for i := range results[:min(len(results), len(b.orders))] {
			b.orders[i].result = results[i]
		}
		return err
	}
	panicked := b.err
	err = m.retry(b.ctx, func(m *Mutex[Tx]) error {
		begun, failed, b.err = false, nil, panicked
		return m.attemptDo(b.ctx, combineVerb, false, work)
	})
	if begun {
		lost := errors.Is(err, ErrLost) && !errors.Is(failed, ErrLost)
		return err, !miscounted && !lost
	}
	return err, errors.Is(err, m.err) || oneMayBeToBlame(err)
}

// reporting is a copy for batches. Its Do puts its error there before a Tracer is told of it, which
// may panic, and its wait ends with Close: others queue behind it in the process.
func (m *Mutex[Tx]) reporting(outcome *error) *Mutex[Tx] {
	reporting := *m
	reporting.outcome = outcome
	return &reporting
}

func inOf[In, Out any](orders []*order[In, Out]) []In {
	in := make([]In, len(orders))
	for i, o := range orders {
		in[i] = o.in
	}
	return in
}

// oneMayBeToBlame tells whether a lock may have failed for one of the rows that it names.
func oneMayBeToBlame(err error) bool {
	var refused dialects.RefusedError
	return errors.Is(err, ErrNoRow) || errors.Is(err, ErrDeadlock) || errors.As(err, &refused)
}

// panicAgain goes on with a panic, or a runtime.Goexit, whose value is nil. The log has it as well:
// the stack is that of the batch, and its callers may all have left.
func panicAgain[Tx any](m *Mutex[Tx], value any) func() {
	if m != nil {
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
