package crew

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock/bench/contest"
)

// crowd has many callers ask for one key again and again, and one caller for another key, which is
// free. All use one client.
func (w *worker) crowd(job Crowd) (report Message, err error) {
	client, err := job.Entrant.open(context.Background())
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	board, err := OpenBoard(job.Board)
	if err != nil {
		return report, err
	}
	defer board.Close()
	if err := rehearse(client, job.Rehearsal); err != nil {
		return report, err
	}
	if err := w.begin(); err != nil {
		return report, err
	}
	ctx, wait := w.untilStopped()
	c := &crowded{job: job, client: client, board: board}
	var group sync.WaitGroup
	for range job.Callers {
		start := rand.N(Ramp)
		group.Go(func() {
			Wait(ctx, start)
			c.call(ctx)
		})
	}
	c.window.watch(ctx, c.askFree)
	group.Wait()
	report.Crowded = &Crowded{
		Took: c.window.took(), Hot: int(c.entered.Load()), Free: c.free, Cut: c.cut, Overlaps: int(c.overlaps.Load()),
	}
	report.Failed = int(c.failed.Load())
	if failure := c.failure.Load(); failure != nil {
		report.Failure = *failure
	}
	return report, wait()
}

// crowded is a crowd while it is measured.
type crowded struct {
	job    Crowd
	client contest.Client
	board  *Board
	window window

	entered, overlaps, failed atomic.Int64
	inside                    atomic.Bool
	failure                   atomic.Pointer[string]

	free []int64 // of the goroutine that asks for the free key
	cut  bool
}

// call asks for the key that all want, until ctx ends.
func (c *crowded) call(ctx context.Context) {
	keys := []string{c.job.Key}
	work := func(context.Context, contest.Tx) error {
		if !c.inside.CompareAndSwap(false, true) {
			c.overlaps.Add(1)
		}
		if c.window.open.Load() {
			c.entered.Add(1)
		}
		if c.job.Hold > 0 {
			time.Sleep(c.job.Hold)
		}
		c.inside.Store(false)
		return nil
	}
	for ctx.Err() == nil {
		c.note(ctx, c.client.Hold(ctx, keys, work))
	}
}

func (c *crowded) note(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	c.failed.Add(1)
	c.failure.Store(new(err.Error()))
	Wait(ctx, breath)
}

// pause is the average time between two calls for the free key.
const pause = 5 * time.Millisecond

// askFree asks for the free key from time to time, until ctx ends. The board counts its entries.
func (c *crowded) askFree(ctx context.Context) {
	if c.job.Free == "" {
		return
	}
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
		c.note(ctx, err)
		Wait(ctx, rand.N(2*pause))
	}
}
