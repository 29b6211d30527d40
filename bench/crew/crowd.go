package crew

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock/bench/contest"
)

// crowd has many callers ask for one key again and again, and one caller for another key, which is
// free. All use one client.
func (w *worker) crowd(job Crowd) (report Message, err error) {
	board, err := OpenBoard(job.Board)
	if err != nil {
		return report, err
	}
	defer board.Close()
	c := &crowded{job: job, board: board, failures: make([]failures, job.Callers+1)}
	err = w.use(job.Entrant, func(ctx context.Context, client contest.Client) {
		c.client = client
		var group sync.WaitGroup
		for i := range job.Callers {
			start := rand.N(Ramp)
			group.Go(func() {
				Wait(ctx, start)
				c.call(ctx, &c.failures[i])
			})
		}
		c.window.watch(ctx, func(ctx context.Context) { c.askFree(ctx, &c.failures[job.Callers]) })
		group.Wait()
	})
	report.Crowded = &Crowded{
		Took: c.window.took(), Hot: int(c.entered.Load()), Free: c.free, Cut: c.cut, Overlaps: int(c.overlaps.Load()),
	}
	for _, f := range c.failures {
		report.note(f)
	}
	return report, err
}

// crowded is a crowd while it is measured.
type crowded struct {
	job      Crowd
	client   contest.Client
	board    *Board
	window   window
	failures []failures // of each caller

	entered, overlaps atomic.Int64
	inside            atomic.Bool

	free []int64 // of the goroutine that asks for the free key
	cut  bool
}

// call asks for the key that all want, until ctx ends.
func (c *crowded) call(ctx context.Context, failures *failures) {
	keys := []string{c.job.Key}
	work := func(context.Context, contest.Tx) error {
		if !c.inside.CompareAndSwap(false, true) {
			c.overlaps.Add(1)
		}
		if c.window.open.Load() {
			c.entered.Add(1)
		}
		time.Sleep(c.job.Hold)
		c.inside.Store(false)
		return nil
	}
	for ctx.Err() == nil {
		if err := c.client.Hold(ctx, keys, work); err != nil && ctx.Err() == nil {
			failures.add(ctx, err)
		}
	}
}

// pause is the average time between two calls for the free key.
const pause = 5 * time.Millisecond

// askFree asks for the free key from time to time, until ctx ends. The board counts its entries.
func (c *crowded) askFree(ctx context.Context, failures *failures) {
	for ctx.Err() == nil {
		asked, entered := Now(), int64(0)
		err := c.client.Hold(ctx, []string{c.job.Free}, func(context.Context, contest.Tx) error {
			entered = Now()
			c.board.enter()
			return nil
		})
		switch {
		case entered != 0:
			c.free = append(c.free, entered-asked)
		case ctx.Err() != nil:
			c.free, c.cut = append(c.free, Now()-asked), true
		}
		if err != nil && ctx.Err() == nil {
			failures.add(ctx, err)
		}
		Wait(ctx, rand.N(2*pause))
	}
}
