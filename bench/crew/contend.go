package crew

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// Ramp is the time in which contenders begin to ask, each at a random moment. If all began at once,
// those that poll would keep polling together: they would hand the lock over quickly, and then
// leave it free. No real service behaves like that.
const Ramp = contest.PollInterval

// contend runs this process's share of the contenders.
func (w *worker) contend(job Contend) (report Message, err error) {
	board, err := OpenBoard(job.Board)
	if err != nil {
		return report, err
	}
	defer board.Close()
	contenders := make([]*contender, job.Contenders)
	err = w.use(job.Entrant, func(ctx context.Context, client contest.Client) {
		var group sync.WaitGroup
		for i := range contenders {
			c := &contender{job: job, number: job.First + i, client: client, board: board}
			contenders[i] = c
			start := rand.N(Ramp)
			group.Go(func() {
				Wait(ctx, start)
				c.run(ctx)
			})
		}
		group.Wait()
	})
	if err != nil {
		return report, err
	}
	for _, c := range contenders {
		report.Acquisitions = append(report.Acquisitions, c.acquisitions...)
		report.note(c.failures)
	}
	return report, nil
}

// contender asks for a lock again and again. It belongs to one goroutine.
type contender struct {
	job    Contend
	number int
	client contest.Client
	board  *Board

	acquisitions []Acquisition
	failures     failures
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
			time.Sleep(c.job.Hold)
			a.Out = Now()
			return nil
		})
		a.At = Now()
		c.acquisitions = append(c.acquisitions, a)
		if err != nil && ctx.Err() == nil {
			c.failures.add(ctx, err)
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
