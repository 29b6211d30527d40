// Package combine makes batches of the orders of many callers. It needs no database: what a batch
// waits for, and what is done with it, is a [Work] of its user's.
package combine

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Queue is where orders In wait for the next batch, which has a result R for each of them.
type Queue[In, R any] struct {
	how Config[In, R]

	mu     sync.Mutex
	orders []*order[In, R] // those that no batch has taken, in the order of arrival
	gone   int             // of them have left
	led    bool            // somebody makes batches of them
}

// Config is what a Queue goes by.
type Config[In, R any] struct {
	Most int // orders of a batch
	// Begin says what a batch waits for, in the goroutine of one of its callers, and where a panic
	// goes on. It waits for nothing: the orders may not be worked on after all. ctx is that of the
	// wait and the work. Attempt is how often the same orders were worked on together before. After
	// an error the halves of the batch are tried.
	Begin func(ctx context.Context, in []In, attempt int) (Work[In, R], error)
	// Panicked is the error of the other orders of a batch when Begin has panicked.
	Panicked error
	// Left is the error of an order whose context has ended before its work began.
	Left func(ctx context.Context) error
	// Pause is how long the same orders wait for another attempt.
	Pause func(attempt int) time.Duration
}

// Work is what is done with one batch.
type Work[In, R any] interface {
	// Await waits until the work may begin, in a goroutine of its own.
	Await() (Next, error)
	// Abandon is called instead of Run when all have left meanwhile.
	Abandon()
	// Run does the work, in the goroutine of one of the callers. What it has set when it panics is
	// what the others get.
	Run(in []In, outcome *Outcome[R])
	// Panicked is called when Await has panicked, or has called runtime.Goexit: then value is nil.
	// It returns what goes on with that in the goroutine of one of the callers, and the error of
	// the orders.
	Panicked(value any) (goOn func(), err error)
}

// Outcome is what Run says of a batch.
type Outcome[R any] struct {
	Results []R // without an error: one for each order
	Err     error
	Next    Next
}

// Next is what becomes of a batch after an error.
type Next int

const (
	// Fail gives the error to all of the batch.
	Fail Next = iota
	// Halve tries the halves, down to a single order, which alone gets the error.
	Halve
	// Again tries the same orders once more.
	Again
)

// New returns an empty queue.
func New[In, R any](how Config[In, R]) *Queue[In, R] { return &Queue[In, R]{how: how} }

// order is what one caller wants done.
//
// It waits in the queue, and then in a batch that waits for its lock. It may leave unless it is
// bound: while work has it, and while its caller's goroutine has something to call. So whoever is
// asked to go on with the queue or with a batch does so, and nobody is forgotten.
type order[In, R any] struct {
	ctx context.Context
	in  In

	// The caller's goroutine gets one of these at a time, while the order is bound.
	calls chan func() // to be called
	ended chan ended[R]

	// Guarded by the mutex of the Queue.
	most    int           // orders in its batch, with it; fewer after a failure
	attempt int           // of its batch, when that runs again
	batch   *batch[In, R] // that has taken it from the queue
	bound   bool
	left    bool
}

// ended is how an order has ended.
type ended[R any] struct {
	result R
	err    error
}

// Do has in done with the next batch. ctx ends the wait for the work, and nothing after that.
func (q *Queue[In, R]) Do(ctx context.Context, in In) (R, error) {
	o := &order[In, R]{
		ctx: ctx, in: in, most: q.how.Most, calls: make(chan func(), 1), ended: make(chan ended[R], 1),
	}
	if q.enqueue(o) {
		q.lead()
	}
	for left := ctx.Done(); ; {
		select {
		case call := <-o.calls:
			call()
			left = ctx.Done() // it may have unbound the order
		case end := <-o.ended:
			return end.result, end.err
		case <-left:
			if q.leave(o) {
				var none R
				return none, q.how.Left(ctx)
			}
			left = nil // a bound order is called, or has its end, soon
		}
	}
}

// enqueue puts an order into the queue. It tells whether the caller has to lead.
func (q *Queue[In, R]) enqueue(o *order[In, R]) (leads bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.orders = append(q.orders, o)
	leads = !q.led
	q.led = true
	return leads
}

// leave takes an order away, unless it is bound. The last one to leave a batch ends its wait.
func (q *Queue[In, R]) leave(o *order[In, R]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if o.bound {
		return false
	}
	o.left = true
	if b := o.batch; b != nil {
		if b.present--; b.present == 0 {
			b.cancel()
		}
	} else if q.gone++; q.gone > len(q.orders)/2 { // so that leaving costs no search
		q.compact()
	}
	return true
}

// compact clears the queue of the orders that have left, with the mutex held.
func (q *Queue[In, R]) compact() {
	if q.gone > 0 {
		q.orders = slices.DeleteFunc(q.orders, func(o *order[In, R]) bool { return o.left })
		q.gone = 0
	}
}

// waiting is how many orders wait in the queue.
func (q *Queue[In, R]) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.orders) - q.gone
}

// lead begins the next batch. It runs in the goroutine of the first caller.
func (q *Queue[In, R]) lead() {
	b := q.nextBatch()
	began := false
	defer func() {
		if !began {
			q.bind(b)
			q.fail(b, q.how.Panicked)
		}
	}()
	n := len(b.orders)
	work, err := q.how.Begin(b.ctx, b.in(), b.attempt)
	began = true
	if err != nil {
		q.bind(b)
		q.goOn(b, n, Halve, err)
		return
	}
	go q.wait(b, work)
}

// passLead has the first caller of the queue lead, if there is one. It is called at the end of each
// batch, on every way there.
func (q *Queue[In, R]) passLead() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.compact()
	if q.led = len(q.orders) > 0; q.led {
		q.orders[0].bound = true
		q.orders[0].calls <- q.lead
	}
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
func (q *Queue[In, R]) gather(callers int, patience time.Duration) {
	for end := time.Now().Add(patience); q.waiting() < callers && time.Now().Before(end); {
		runtime.Gosched()
	}
	q.passLead()
}
