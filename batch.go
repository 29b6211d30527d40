package txlock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/txlock/txlock/dialects"
)

// order is what one caller of a Combined wants done.
//
// It waits in the queue, and then in a batch that waits for its lock. It may leave unless it is
// bound: while work has it, and while its caller's goroutine has something to call. So whoever is
// asked to go on with the queue or with a batch does so, and nobody is forgotten.
type order[In, Out any] struct {
	ctx context.Context
	in  In

	// The caller's goroutine gets one of these at a time, while the order is bound.
	calls  chan func() // to be called
	result chan Result[Out]

	// Guarded by the mutex of the Combined.
	most    int             // orders in its batch, with it; fewer after a failure
	attempt int             // of its batch, when that runs again
	batch   *batch[In, Out] // that has taken it from the queue
	bound   bool
	left    bool
}

// batch is orders that wait for a lock, or are worked on, together. It waits in a goroutine of its
// own: when that of a caller did, the batch would have to ask anew, and behind others, each time
// such a caller leaves. The work is done in the goroutine of a caller.
type batch[In, Out any] struct {
	orders  []*order[In, Out]
	ctx     context.Context // of the wait and the work
	cancel  context.CancelFunc
	present int // orders that have not left; guarded by the mutex of the Combined
	attempt int // how often the same orders have been worked on together before
	begun   time.Time
}

func (b *batch[In, Out]) in() []In {
	in := make([]In, len(b.orders))
	for i, o := range b.orders {
		in[i] = o.in
	}
	return in
}

// enqueue puts an order into the queue. It tells whether the caller has to lead.
func (c *Combined[Tx, In, Out]) enqueue(o *order[In, Out]) (leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, o)
	leads = !c.led
	c.led = true
	return leads
}

// await calls what the caller's goroutine is asked for, until the order has its result or leaves.
func (c *Combined[Tx, In, Out]) await(o *order[In, Out]) (out Out, err error) {
	for ended := o.ctx.Done(); ; {
		select {
		case call := <-o.calls:
			call()
			ended = o.ctx.Done() // it may have unbound the order
		case result := <-o.result:
			return result.Value, result.Err
		case <-ended:
			if c.leave(o) {
				return out, leftQueue(o.ctx)
			}
			ended = nil // a bound order is called, or has its result, soon
		}
	}
}

// leave takes an order away, unless it is bound. The last one to leave a batch ends its wait.
func (c *Combined[Tx, In, Out]) leave(o *order[In, Out]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.bound {
		return false
	}
	o.left = true
	if b := o.batch; b != nil {
		if b.present--; b.present == 0 {
			b.cancel()
		}
	} else if c.gone++; c.gone > len(c.queue)/2 { // so that leaving costs no search
		c.compact()
	}
	return true
}

// compact clears the queue of the orders that have left, with the mutex held.
func (c *Combined[Tx, In, Out]) compact() {
	if c.gone > 0 {
		c.queue = slices.DeleteFunc(c.queue, func(o *order[In, Out]) bool { return o.left })
		c.gone = 0
	}
}

// passLead has the first caller of the queue lead, if there is one. It is called at the end of each
// batch, on every way there.
func (c *Combined[Tx, In, Out]) passLead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compact()
	if c.led = len(c.queue) > 0; c.led {
		c.queue[0].bound = true
		c.queue[0].calls <- c.lead
	}
}

// nextBatch makes a batch of the queue, whose first caller leads.
func (c *Combined[Tx, In, Out]) nextBatch() *batch[In, Out] {
	b := &batch[In, Out]{begun: time.Now()}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compact()
	c.queue[0].bound = false
	most := c.queue[0].most
	b.attempt = c.queue[0].attempt
	for _, o := range c.queue[:min(most, len(c.queue))] {
		if o.most != most || o.attempt != b.attempt { // what is tried again stays apart from what follows
			break
		}
		o.batch = b
		b.present++
	}
	b.orders = slices.Clone(c.queue[:b.present])
	c.queue = slices.Delete(c.queue, 0, b.present)
	return b
}

// bind leaves in a batch the orders whose contexts have not ended, and binds them.
func (c *Combined[Tx, In, Out]) bind(b *batch[In, Out]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.bind()
}

// bind is called with the mutex of the Combined held. An order whose context has ended gets that
// error and is taken out. Its caller may have left before, and then nobody reads the error.
func (b *batch[In, Out]) bind() {
	b.orders = slices.DeleteFunc(b.orders, func(o *order[In, Out]) bool {
		o.bound = true
		ended := o.ctx.Err() != nil
		if ended {
			o.result <- Result[Out]{Err: leftQueue(o.ctx)}
		}
		return ended
	})
}

// lead begins the next batch. It runs in the goroutine of the first caller, where a panic of lock
// goes on.
func (c *Combined[Tx, In, Out]) lead() {
	b := c.nextBatch()
	named := false
	defer func() {
		if !named {
			c.bind(b)
			c.fail(b, fmt.Errorf("txlock: Combine: naming the lock in another caller's goroutine: %w", ErrPanicked))
		}
	}()
	n := len(b.orders)
	m := c.lock(b.in())
	if m == nil {
		named = true
		c.bind(b)
		c.refuse(b, n, errors.New("txlock: Combine: lock returned a nil Mutex"))
		return
	}
	m = m.inAttempt(b.attempt)
	ctx, trace := m.startTrace(b.ctx, combineVerb, false)
	named = true
	go c.wait(ctx, b, m, trace)
}

// wait waits for the lock of a batch, and then has the first of its callers do the work.
func (c *Combined[Tx, In, Out]) wait(ctx context.Context, b *batch[In, Out], m *Mutex[Tx], trace *trace) {
	returned := false
	defer func() {
		if !returned {
			c.panicked(b, m, trace, recover())
		}
	}()
	n := len(b.orders)
	g, err := m.acquireUntilClose(ctx)
	c.bind(b)
	if err == nil && len(b.orders) == 0 { // the grant won the race against the last to leave
		_ = g.finish(ctx, false)
		err = fmt.Errorf("%w: %w", ErrNotAcquired, context.Canceled)
	}
	failed := m.wrap(combineVerb, err)
	if err != nil {
		trace.answer(failed)
	}
	returned = true
	switch {
	case err == nil:
		b.orders[0].calls <- func() { c.perform(ctx, b, m, g, trace) }
	case m.mayRunAgain(err):
		c.runAgain(b)
	case errors.Is(err, m.err) || oneMayBeToBlame(err):
		c.refuse(b, n, failed)
	default:
		c.fail(b, failed)
	}
}

// acquireUntilClose is acquire for a batch. Close ends its wait: other callers, whose own contexts
// say nothing of it, queue behind the batch.
func (m *Mutex[Tx]) acquireUntilClose(ctx context.Context) (g grant[Tx], err error) {
	wait, done := m.locker.untilClose(ctx)
	defer done()
	g, err = m.acquire(wait, false, true)
	if err != nil && m.locker.closing.Err() != nil {
		err = ErrClosed
	}
	return g, err
}

// panicked is the end of a wait in which the client library or a Tracer panicked, or called
// runtime.Goexit, where value is nil. That goes on in the goroutine of a caller, as it would in a
// Do. The log has it too: the stack is this one's, and the callers may all have left.
func (c *Combined[Tx, In, Out]) panicked(b *batch[In, Out], m *Mutex[Tx], trace *trace, value any) {
	m.locker.config.logger.Error("txlock: a panic while a batch waited for its lock", "lock", m.target.String(),
		"panic", fmt.Sprint(value), "stack", string(debug.Stack()))
	c.bind(b)
	failed := m.wrap(combineVerb, fmt.Errorf("waiting for the lock in another caller's goroutine: %w", ErrPanicked))
	goOn := func() {
		defer c.fail(b, failed)
		defer trace.answer(failed)
		if value == nil {
			runtime.Goexit()
		}
		panic(value)
	}
	if len(b.orders) > 0 {
		b.orders[0].calls <- goOn
		return
	}
	defer func() { _ = recover() }()
	goOn()
}

// oneMayBeToBlame tells whether a lock may have failed for one of the rows that it names.
func oneMayBeToBlame(err error) bool {
	var refused dialects.RefusedError
	return errors.Is(err, ErrNoRow) || errors.Is(err, ErrDeadlock) || errors.As(err, &refused)
}

// perform does the work of a batch that has its lock, in the goroutine of one of its callers.
func (c *Combined[Tx, In, Out]) perform(ctx context.Context, b *batch[In, Out], m *Mutex[Tx], g grant[Tx],
	trace *trace,
) {
	var results []Result[Out]
	final := false // another try would not help, or might do twice what is done
	work := func(ctx context.Context, tx Tx) (err error) {
		if results, err = c.work(ctx, tx, b.in()); err == nil {
			err = oneEach(len(results), len(b.orders))
			final = err != nil
		}
		return err
	}
	err := m.wrap(combineVerb, fmt.Errorf("%w in another caller's goroutine", ErrPanicked))
	returned := false
	defer func() { // also when work panicked, or the Tracer, whatever became of the work
		switch {
		case err == nil:
			c.succeed(b, results)
		case returned && m.mayRunAgain(err):
			c.runAgain(b)
		case final || !returned: // whose goroutine is panicking cannot lead
			c.fail(b, err)
		default:
			c.refuse(b, len(b.orders), err)
		}
	}()
	_ = traced(trace, work, func(work func(context.Context, Tx) error) error {
		failed, ended := g.perform(ctx, work)
		final = final || errors.Is(ended, ErrLost)
		err = joinErrors(failed, m.wrap(combineVerb, ended))
		return err
	})
	returned = true
}

// succeed hands out the results of a batch that is committed.
func (c *Combined[Tx, In, Out]) succeed(b *batch[In, Out], results []Result[Out]) {
	b.cancel()
	callers := min(len(b.orders)+c.queued(), c.most)
	for i, o := range b.orders {
		o.result <- results[i]
	}
	if len(b.orders) == 1 {
		c.passLead()
		return
	}
	go c.gather(callers, min(time.Since(b.begun)/gatherPart, gatherAtMost))
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
	for end := time.Now().Add(patience); c.queued() < callers && time.Now().Before(end); {
		runtime.Gosched()
	}
	c.passLead()
}

// queued is how many orders wait in the queue.
func (c *Combined[Tx, In, Out]) queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) - c.gone
}

// fail hands out the error of a batch of which nothing is committed, or nobody can know.
func (c *Combined[Tx, In, Out]) fail(b *batch[In, Out], err error) {
	b.cancel()
	for _, o := range b.orders {
		o.result <- Result[Out]{Err: err}
	}
	c.passLead()
}

// refuse is fail for an error that a single order of n may have caused: the others are tried
// without it. Some of the n may have left, and the culprit with them. The halves go to the front of
// the queue, where their callers may leave again.
func (c *Combined[Tx, In, Out]) refuse(b *batch[In, Out], n int, err error) {
	if n < 2 {
		c.fail(b, err)
		return
	}
	b.cancel()
	c.putBack(b, (n+1)/2, b.attempt)
	c.passLead()
}

// runAgain is refuse for what [Mutex.Retry] tries once more, with all orders.
func (c *Combined[Tx, In, Out]) runAgain(b *batch[In, Out]) {
	b.cancel()
	c.putBack(b, c.most, b.attempt+1)
	if len(b.orders) == 0 {
		c.passLead()
		return
	}
	go func() {
		time.Sleep(jitter(b.attempt))
		c.passLead()
	}()
}

// putBack puts the orders of a batch back to the front of the queue, without those whose contexts
// have ended. All under one mutex: the caller of a bound order whose context ends asks once whether
// it may leave, and is not asked again when the order is unbound.
func (c *Combined[Tx, In, Out]) putBack(b *batch[In, Out], most, attempt int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.bind()
	for _, o := range b.orders {
		o.most, o.attempt, o.batch, o.bound = most, attempt, nil, false
	}
	c.queue = slices.Insert(c.queue, 0, b.orders...)
}
