package crew

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/internal/test/shop"
)

// Replays is how often the orders of the file are placed, as new orders each time.
const Replays = 10

// replay places orders until all are decided, or the parent says Stop.
func (w *worker) replay(job Replay) (report Message, err error) {
	orders, err := shop.Load(Replays)
	if err != nil {
		return report, err
	}
	background := context.Background()
	client, err := job.Entrant.open(background)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	desk, err := openDesk(background, job.Entrant.Books, job.Workers)
	if err != nil {
		return report, err
	}
	defer desk.close()
	if err := rehearse(client, job.Rehearsal); err != nil {
		return report, err
	}
	if err := w.begin(); err != nil {
		return report, err
	}
	ctx, wait := w.untilStopped()
	queue := make(chan int, len(job.Orders))
	for _, index := range job.Orders {
		queue <- index
	}
	close(queue)

	placed := placing{client: client, desk: desk}
	var group sync.WaitGroup
	for range job.Workers {
		group.Go(func() {
			for index := range queue {
				if ctx.Err() != nil {
					return
				}
				placed.note(ctx, index, placed.place(ctx, orders[index]))
			}
		})
	}
	group.Wait()
	if len(queue) == 0 && ctx.Err() == nil {
		w.say(Message{Event: Left}) // so that the parent need not wait for the full time
	}
	report.Replayed, report.Failed = &placed.Replayed, placed.failed
	if placed.failure != nil {
		report.Failure = placed.failure.Error()
	}
	return report, wait()
}

// placing places the orders of a job.
type placing struct {
	client contest.Client
	desk   *desk

	mu sync.Mutex
	Replayed
	failed  int
	failure error
}

// place decides on an order under its lock. Work that has begun is finished even if ctx ends. The
// decision is known even if the unlock fails.
func (p *placing) place(ctx context.Context, o shop.Order) (result decided) {
	result.err = p.client.Hold(ctx, o.SKUs(), func(held context.Context, tx contest.Tx) (err error) {
		if tx == nil {
			held = context.WithoutCancel(held)
		}
		result.outcome, err = p.desk.decide(held, tx, o)
		result.done = err == nil
		result.transacted = tx != nil
		return err
	})
	return result
}

// decided is the outcome of an order.
type decided struct {
	outcome    shop.Outcome
	done       bool // the work returned without an error
	transacted bool // it counts only if the lock's transaction was committed
	err        error
}

func (p *placing) note(ctx context.Context, index int, d decided) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.err != nil && ctx.Err() == nil {
		p.failed++
		p.failure = fmt.Errorf("order %d: %w", index, d.err)
	}
	if d.transacted && d.done && d.err != nil && ctx.Err() != nil {
		p.Unclear++
	}
	if !d.done || d.transacted && d.err != nil {
		return
	}
	if d.outcome != shop.Known && ctx.Err() == nil {
		p.InTime++
	}
	switch d.outcome {
	case shop.Booked:
		p.Booked = append(p.Booked, index)
	case shop.Refused:
		p.Refused = append(p.Refused, index)
	case shop.Known:
		p.Known = append(p.Known, index)
	}
}
