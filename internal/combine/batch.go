package combine

import (
	"context"
	"slices"
	"time"
)

// batch is orders that wait for their work, or are worked on, together. It waits in a goroutine of
// its own: when that of a caller did, the batch would have to ask anew, and behind others, each
// time such a caller leaves. The work is done in the goroutine of a caller.
type batch[In, R any] struct {
	orders  []*order[In, R]
	ctx     context.Context // of the wait and the work
	cancel  context.CancelFunc
	present int // orders that have not left; guarded by the mutex of the Queue
	attempt int // how often the same orders have been worked on together before
	begun   time.Time
}

func (b *batch[In, R]) in() []In {
	in := make([]In, len(b.orders))
	for i, o := range b.orders {
		in[i] = o.in
	}
	return in
}

// nextBatch makes a batch of the queue, whose first caller leads.
func (q *Queue[In, R]) nextBatch() *batch[In, R] {
	b := &batch[In, R]{begun: time.Now()}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	q.mu.Lock()
	defer q.mu.Unlock()
	q.compact()
	first := q.orders[0]
	first.bound = false
	b.attempt = first.attempt
	for _, o := range q.orders[:min(first.most, len(q.orders))] {
		if o.most != first.most || o.attempt != b.attempt { // what is tried again stays apart from what follows
			break
		}
		o.batch = b
		b.present++
	}
	b.orders = slices.Clone(q.orders[:b.present])
	q.orders = slices.Delete(q.orders, 0, b.present)
	return b
}

// bind leaves in a batch the orders whose contexts have not ended, and binds them.
func (q *Queue[In, R]) bind(b *batch[In, R]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bindLocked(b)
}

// bindLocked is called with the mutex held. An order whose context has ended gets that error and is
// taken out. Its caller may have left before, and then nobody reads the error.
func (q *Queue[In, R]) bindLocked(b *batch[In, R]) {
	b.orders = slices.DeleteFunc(b.orders, func(o *order[In, R]) bool {
		o.bound = true
		gone := o.ctx.Err() != nil
		if gone {
			o.ended <- ended[R]{err: q.how.Left(o.ctx)}
		}
		return gone
	})
}

// wait waits until the work of a batch may begin, and then has the first of its callers do it.
func (q *Queue[In, R]) wait(b *batch[In, R], work Work[In, R]) {
	returned := false
	defer func() {
		if !returned {
			q.panicked(b, work, recover())
		}
	}()
	n := len(b.orders)
	next, err := work.Await()
	q.bind(b)
	if err == nil && len(b.orders) == 0 { // it was granted just as the last one left
		work.Abandon()
	}
	returned = true
	switch {
	case err != nil:
		q.goOn(b, n, next, err)
	case len(b.orders) == 0:
		q.fail(b, nil)
	default:
		b.orders[0].calls <- func() { q.run(b, work) }
	}
}

// panicked is the end of a wait that has panicked. That goes on in the goroutine of a caller, as it
// would without batches. They may all have left.
func (q *Queue[In, R]) panicked(b *batch[In, R], work Work[In, R], value any) {
	goOn, err := work.Panicked(value)
	q.bind(b)
	last := func() {
		defer q.fail(b, err)
		goOn()
	}
	if len(b.orders) > 0 {
		b.orders[0].calls <- last
		return
	}
	defer func() { _ = recover() }()
	last()
}

// run does the work of a batch, in the goroutine of one of its callers.
func (q *Queue[In, R]) run(b *batch[In, R], work Work[In, R]) {
	var outcome Outcome[R]
	returned := false
	defer func() { // also when it panicked, whatever became of the work
		switch {
		case outcome.Err == nil:
			q.succeed(b, outcome.Results)
		case !returned: // whose goroutine is panicking cannot lead
			q.fail(b, outcome.Err)
		default:
			q.goOn(b, len(b.orders), outcome.Next, outcome.Err)
		}
	}()
	work.Run(b.in(), &outcome)
	returned = true
}

// succeed hands out the results of a batch.
func (q *Queue[In, R]) succeed(b *batch[In, R], results []R) {
	b.cancel()
	callers := min(len(b.orders)+q.waiting(), q.how.Most)
	for i, o := range b.orders {
		o.ended <- ended[R]{result: results[i]}
	}
	if len(b.orders) == 1 {
		q.passLead()
		return
	}
	go q.gather(callers, min(time.Since(b.begun)/gatherPart, gatherAtMost))
}

// fail hands out an error to all of a batch.
func (q *Queue[In, R]) fail(b *batch[In, R], err error) {
	b.cancel()
	for _, o := range b.orders {
		o.ended <- ended[R]{err: err}
	}
	q.passLead()
}

// goOn goes on after an error that a batch of n orders has met. Some of them may have left, and the
// culprit with them. What is tried again goes to the front of the queue, where callers may leave
// again.
func (q *Queue[In, R]) goOn(b *batch[In, R], n int, next Next, err error) {
	if next == Fail || next == Halve && n < 2 {
		q.fail(b, err)
		return
	}
	b.cancel()
	most, attempt, pause := (n+1)/2, b.attempt, time.Duration(0)
	if next == Again {
		most, attempt, pause = q.how.Most, b.attempt+1, q.how.Pause(b.attempt)
	}
	q.putBack(b, most, attempt)
	if pause == 0 || len(b.orders) == 0 {
		q.passLead()
		return
	}
	go func() {
		time.Sleep(pause)
		q.passLead()
	}()
}

// putBack puts the orders of a batch back to the front of the queue, without those whose contexts
// have ended. All under one mutex: the caller of a bound order whose context ends asks once whether
// it may leave, and is not asked again when the order is unbound.
func (q *Queue[In, R]) putBack(b *batch[In, R], most, attempt int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bindLocked(b)
	for _, o := range b.orders {
		o.most, o.attempt, o.batch, o.bound = most, attempt, nil, false
	}
	q.orders = slices.Insert(q.orders, 0, b.orders...)
}
