package crew

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// breath is the pause after a failed call. Without it, the failures would become the load.
const breath = 10 * time.Millisecond

// Ramp is the time in which contenders begin to ask, each at a random moment. If all began at once,
// those that poll would keep polling together: they would hand the lock over quickly, and then
// leave it free. No real service behaves like that.
const Ramp = contest.PollInterval

// contend runs this process's share of the contenders.
func (w *worker) contend(job Contend) (report Message, err error) {
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
	contenders := make([]*contender, job.Contenders)
	for i := range contenders {
		contenders[i] = &contender{job: job, number: job.First + i, client: client, board: board}
	}
	if err := rehearse(client, job.Rehearsal); err != nil {
		return report, err
	}
	if err := w.begin(); err != nil {
		return report, err
	}
	ctx, wait := w.untilStopped()
	var group sync.WaitGroup
	for _, c := range contenders {
		start := rand.N(Ramp)
		group.Go(func() {
			Wait(ctx, start)
			c.run(ctx)
		})
	}
	group.Wait()
	for _, c := range contenders {
		report.Acquisitions = append(report.Acquisitions, c.acquisitions...)
		report.Failed += c.failed
		if c.failure != nil && report.Failure == "" {
			report.Failure = c.failure.Error()
		}
	}
	return report, wait()
}

// rehearse locks a key for each caller of the client at once. Pools then have their connections
// open and their statements prepared before anything is measured.
func rehearse(client contest.Client, keys []string) error {
	failed := make([]error, len(keys))
	for range 3 {
		var group sync.WaitGroup
		for i, key := range keys {
			group.Go(func() {
				failed[i] = client.Hold(context.Background(), []string{key}, func(context.Context, contest.Tx) error {
					time.Sleep(time.Millisecond) // the other callers hold theirs at the same time
					return nil
				})
			})
		}
		group.Wait()
	}
	return errors.Join(failed...)
}

// contender asks for a lock again and again. It belongs to one goroutine.
type contender struct {
	job    Contend
	number int
	client contest.Client
	board  *Board

	acquisitions []Acquisition
	failed       int
	failure      error
}

// run asks until ctx ends. A request that was not granted by then is recorded with only its time of
// asking.
func (c *contender) run(ctx context.Context) {
	for ctx.Err() == nil {
		a := Acquisition{Contender: c.number, Asked: Now()}
		var entry int64
		err := c.client.Hold(ctx, []string{c.job.Key}, func(context.Context, contest.Tx) error {
			a.In = Now()
			entry = c.board.enter()
			if c.job.Hold > 0 {
				time.Sleep(c.job.Hold)
			}
			a.Out = Now()
			return nil
		})
		a.At = Now()
		c.acquisitions = append(c.acquisitions, a)
		if err != nil && ctx.Err() == nil {
			c.failed++
			c.failure = err
			Wait(ctx, breath)
		}
		if c.job.Rejoin == results.AfterNext && a.In != 0 {
			c.awaitNext(ctx, entry)
		}
	}
}

// awaitNext returns when another contender has entered after entry. Only one goroutine at a time
// waits here.
func (c *contender) awaitNext(ctx context.Context, entry int64) {
	for c.board.Entered() == entry && ctx.Err() == nil {
		time.Sleep(50 * time.Microsecond)
	}
}
