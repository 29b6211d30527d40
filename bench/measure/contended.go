package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/results"
)

// MeasureContended measures several processes that want one key.
func (l *Lab) MeasureContended(ctx context.Context) error {
	var all []*results.Contended
	for _, p := range l.Contended.Settings {
		for _, c := range l.in(contest.Contention) {
			all = append(all, &results.Contended{
				Contestant: c.Name, Contenders: p.Contenders, Processes: min(processes, p.Contenders),
				Hold: l.Contended.Hold, Rejoin: p.Rejoin,
			})
		}
	}
	err := rounds(ctx, l, "contended", l.Contended.Rounds, all, func(cell *results.Contended) error {
		c, err := contest.Find(cell.Contestant)
		if err != nil {
			return err
		}
		round, err := l.contend(ctx, c, *cell)
		if err != nil {
			l.missing(c, fmt.Sprintf("contended, %d contenders", cell.Contenders), err)
			return nil
		}
		cell.Rounds = append(cell.Rounds, round)
		return nil
	})
	for _, cell := range all {
		if len(cell.Rounds) > 0 {
			l.run.Contended = append(l.run.Contended, *cell)
		}
	}
	return err
}

// contend measures one contestant in one run.
func (l *Lab) contend(ctx context.Context, c contest.Contestant, cell results.Contended) (
	round results.ContendedRound, err error,
) {
	const name = "contended"
	l.board.Clear()
	jobs := l.share(c, cell.Contenders, crew.Contend{
		Key: hotKey, Hold: cell.Hold, Rejoin: cell.Rejoin, Board: l.board.Path(),
	})
	var began, ended int64
	var before, after time.Duration
	var unread error // why the server's CPU time or connections are unknown
	reports, err := l.crew.Run(ctx, jobs, func() {
		crew.Wait(ctx, crew.Ramp)
		before, unread = l.Testbed.CPU(c.Server)
		began = crew.Now()
		l.await(ctx, l.Contended.Window)
		ended = crew.Now()
		if unread == nil {
			after, unread = l.Testbed.CPU(c.Server)
		}
		var err error
		round.Connections, err = l.Testbed.Connections(c.Server)
		unread = errors.Join(unread, err)
	})
	if err != nil {
		return round, err
	}
	if unread != nil {
		l.missing(c, name+", processor time and connections of the server", unread)
	}
	var acquisitions []crew.Acquisition
	for _, report := range reports {
		acquisitions = append(acquisitions, report.Acquisitions...)
		round.Failed += report.Failed
		l.failed(c, name, report)
	}
	analyse(&round, acquisitions, timeline{began: began, ended: ended, contenders: cell.Contenders})
	round.ServerCPU = max(0, after-before)
	return round, nil
}

// share divides the contenders among processes.
func (l *Lab) share(c contest.Contestant, contenders int, job crew.Contend) (jobs []crew.Job) {
	members := min(processes, contenders)
	for i := range members {
		mine := job
		mine.First, mine.Contenders = contenders*i/members, contenders*(i+1)/members-contenders*i/members
		mine.Entrant = l.entrant(c, lease, mine.Contenders)
		for number := range mine.Contenders {
			mine.Rehearsal = append(mine.Rehearsal, crew.Key(keys-1-mine.First-number))
		}
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
