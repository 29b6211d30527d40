package measure

import (
	"context"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/results"
)

// MeasureContended measures several processes that want one key.
func (l *Lab) MeasureContended(ctx context.Context) (err error) {
	var all []results.Contended
	for _, p := range l.Contended.Settings {
		for _, c := range l.in(contest.Contention) {
			if p.Contenders > mostSessions && c.Group != contest.TxLock {
				continue // each of its contenders has a session
			}
			all = append(all, results.Contended{Contestant: c.Name, Contenders: p.Contenders, Rejoin: p.Rejoin})
		}
	}
	l.run.Contended, err = fill(ctx, l, "contended", l.Contended.Rounds, all,
		func(c *results.Contended) (string, *[]results.ContendedRound) { return c.Contestant, &c.Rounds }, l.contend)
	return err
}

// contend measures one contestant in one run.
func (l *Lab) contend(ctx context.Context, c contest.Contestant, cell results.Contended) (
	round results.ContendedRound, err error,
) {
	l.board.Clear()
	jobs := l.share(c, cell.Contenders, crew.Contend{
		Key: hotKey, Hold: l.Contended.Hold, Rejoin: cell.Rejoin, Board: l.board.Path(),
	})
	run := timeline{contenders: cell.Contenders}
	reports, err := l.crew.Run(ctx, jobs, func() {
		crew.Wait(ctx, crew.Ramp)
		run.began = crew.Now()
		l.await(ctx, l.Contended.Window)
		run.ended = crew.Now()
	})
	if err != nil {
		return round, err
	}
	var acquisitions []crew.Acquisition
	for _, report := range reports {
		acquisitions = append(acquisitions, report.Acquisitions...)
		round.Failed += report.Failed
		l.failed(c, "contended", report)
	}
	analyse(&round, acquisitions, run)
	return round, nil
}

// share divides the contenders among processes.
func (l *Lab) share(c contest.Contestant, contenders int, job crew.Contend) (jobs []crew.Job) {
	members := min(processes, contenders)
	for i := range members {
		mine := job
		mine.First, mine.Contenders = contenders*i/members, contenders*(i+1)/members-contenders*i/members
		mine.Entrant = l.entrant(c, lease, mine.Contenders)
		jobs = append(jobs, crew.Job{Contend: &mine})
	}
	return jobs
}

// await waits as long as the window says.
func (l *Lab) await(ctx context.Context, window Window) {
	began := time.Now()
	crew.Wait(ctx, window.For)
	for l.board.Entered() < window.Least && time.Since(began) < window.AtMost && ctx.Err() == nil {
		crew.Wait(ctx, 10*time.Millisecond)
	}
}
