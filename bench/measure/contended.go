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
func (l *Lab) MeasureContended(ctx context.Context) (err error) {
	l.run.Contended, err = l.contention(ctx, "contended", l.Contended)
	return err
}

func (l *Lab) contention(ctx context.Context, name string, plans []ContendedPlan) (all []results.Contended, err error) {
	total, done := 0, 0
	for _, p := range plans {
		for round := range max(p.Rounds, p.Compared) {
			total += len(p.Contenders) * len(p.Holds) * len(l.in(p.parts(round)))
		}
	}
	for _, p := range plans {
		for _, hold := range p.Holds {
			for _, contenders := range p.Contenders {
				cells, err := l.cells(ctx, name, p, results.Contended{
					Contenders: contenders, Processes: min(processes, contenders), Hold: hold, Rejoin: p.Rejoin,
				}, func() {
					l.Tell(name, done, total)
					done++
				})
				if err != nil {
					return nil, err
				}
				all = append(all, cells...)
			}
		}
	}
	l.Tell(name, total, total)
	return all, nil
}

// cells measures all contestants in one combination of contenders and hold time.
func (l *Lab) cells(ctx context.Context, name string, p ContendedPlan, setting results.Contended, step func()) (
	all []results.Contended, err error,
) {
	cells := make(map[string]*results.Contended)
	for round := range max(p.Rounds, p.Compared) {
		for _, c := range l.shuffled(l.in(p.parts(round))) {
			step()
			cell := cells[c.Name]
			if cell == nil {
				cell = new(setting)
				cell.Contestant = c.Name
				cells[c.Name] = cell
			}
			round, err := l.contend(ctx, name, c, *cell, p.Window)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err != nil {
				l.missing(c, fmt.Sprintf("%s, %d contenders", name, setting.Contenders), err)
				continue
			}
			cell.Rounds = append(cell.Rounds, round)
		}
	}
	for _, c := range l.entrants {
		if cell := cells[c.Name]; cell != nil && len(cell.Rounds) > 0 {
			all = append(all, *cell)
		}
	}
	return all, nil
}

// parts are those whose contestants take part in a round.
func (p ContendedPlan) parts(round int) (parts contest.Part) {
	if round < p.Rounds {
		parts |= contest.Contention
	}
	if round < p.Compared {
		parts |= contest.HandOff
	}
	return parts
}

// contend measures one contestant in one run.
func (l *Lab) contend(ctx context.Context, name string, c contest.Contestant, cell results.Contended, window Window) (
	round results.ContendedRound, err error,
) {
	l.board.Clear()
	jobs := l.share(c, cell.Contenders, crew.Contend{
		Keys: []string{key(1)}, Hold: cell.Hold, Rejoin: cell.Rejoin, Board: l.board.Path(), Seed: l.Seed,
	})
	var began, ended int64
	var before, after time.Duration
	var unread error // why the server's CPU time or connections are unknown
	reports, err := l.crew.Run(ctx, jobs, func() {
		crew.Wait(ctx, crew.Ramp)
		before, unread = l.Testbed.CPU(c.Server)
		began = crew.Now()
		l.await(ctx, window)
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
	analyse(&round, acquisitions, timeline{
		began: began, ended: ended, contenders: cell.Contenders,
		exclusive: c.Waits != contest.Retrying,
	})
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
			mine.Rehearsal = append(mine.Rehearsal, key(keys-1-mine.First-number))
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
