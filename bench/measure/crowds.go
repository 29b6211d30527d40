package measure

import (
	"context"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/results"
)

// The keys of a crowd: the one that all want, and the free one.
var hotKey, freeKey = key(1), key(2)

// MeasureCrowds measures one process with more callers of one key than it has connections: what
// becomes of the caller of another key, how many sessions the callers take at the server, and how
// often they get their key. Contestants of txlock's floor also get a connection for each caller, to
// compare with.
func (l *Lab) MeasureCrowds(ctx context.Context) error {
	var all []*results.Crowd
	for _, c := range l.in(contest.Crowd) {
		sizes := l.Crowds.Callers
		if !c.Server.SQL() {
			sizes = sizes[len(sizes)-1:]
		}
		for _, callers := range sizes {
			all = append(all, &results.Crowd{Contestant: c.Name, Callers: callers, Connections: l.Crowds.Connections})
		}
		if c.Group == contest.Floor {
			all = append(all, &results.Crowd{Contestant: c.Name, Callers: ownSessions, Connections: ownSessions + 1})
		}
	}
	err := turns(ctx, l, "crowds", l.Crowds.Rounds, all, func(crowd *results.Crowd) string {
		return crowd.Contestant
	}, func(c contest.Contestant, crowd *results.Crowd) error {
		crowd.Hold = l.Crowds.Hold
		round, err := l.crowd(ctx, c, *crowd)
		if err == nil {
			crowd.Rounds = append(crowd.Rounds, round)
		}
		return err
	})
	for _, crowd := range all {
		if len(crowd.Rounds) > 0 {
			l.run.Crowds = append(l.run.Crowds, *crowd)
		}
	}
	return err
}

// ownSessions is the number of callers with a connection for each.
const ownSessions = 64

// turns measures each of all once in each round, in a new random order.
func turns[Cell any](ctx context.Context, l *Lab, name string, rounds int, all []Cell, of func(Cell) string,
	measure func(contest.Contestant, Cell) error,
) error {
	total, done := rounds*len(all), 0
	for range rounds {
		for _, i := range l.random.Perm(len(all)) {
			l.Tell(name, done, total)
			done++
			c, err := contest.Find(of(all[i]))
			if err != nil {
				return err
			}
			err = measure(c, all[i])
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				l.missing(c, name, err)
			}
		}
	}
	l.Tell(name, total, total)
	return nil
}

// crowd measures one contestant once.
func (l *Lab) crowd(ctx context.Context, c contest.Contestant, crowd results.Crowd) (
	round results.CrowdRound, err error,
) {
	job := crew.Crowd{
		Entrant: l.entrant(c, lease, crowd.Connections), Callers: crowd.Callers, Key: hotKey, Free: freeKey,
		Hold: crowd.Hold, Board: l.board.Path(), Rehearsal: rehearsal(crowd.Connections),
	}
	job.Entrant.Environment.Callers = crowd.Callers + 1
	report, err := l.gather(ctx, job, func() {
		watched, stop := context.WithCancel(ctx)
		busy := make(chan int, 1)
		go func() { busy <- l.watchSessions(watched, c.Server) }()
		l.await(ctx, l.Crowds.Window)
		var err error
		if round.Open, err = l.Testbed.Connections(c.Server); err != nil {
			l.missing(c, "crowds, connections of the server", err)
		}
		stop()
		round.Busy = <-busy
	})
	if err != nil {
		return round, err
	}
	l.failed(c, "crowds", report)
	found := report.Crowded
	round.Took, round.Hot, round.Free, round.Cut = found.Took, found.Hot, len(found.Free), found.Cut
	round.FreeP50 = time.Duration(results.Quantile(found.Free, 0.5))
	round.FreeP99 = time.Duration(results.Quantile(found.Free, 0.99))
	round.Overlaps, round.Failed = found.Overlaps, report.Failed
	return round, nil
}

// rehearsal is a key for each connection.
func rehearsal(connections int) (some []string) {
	for number := range connections {
		some = append(some, key(keys-1-number))
	}
	return some
}

// gather runs a crowd in one worker, and during while it is complete.
func (l *Lab) gather(ctx context.Context, job crew.Crowd, during func()) (report crew.Message, err error) {
	l.board.Clear()
	reports, err := l.crew.Run(ctx, []crew.Job{{Crowd: &job}}, func() {
		crew.Wait(ctx, crew.Settle)
		during()
	})
	if err != nil {
		return report, err
	}
	return reports[0], nil
}

// watchSessions is the largest number of busy sessions that it saw until ctx ended.
func (l *Lab) watchSessions(ctx context.Context, server contest.Server) (most int) {
	for ctx.Err() == nil {
		busy, err := l.sessions[server].Busy(ctx)
		if err != nil {
			return most
		}
		most = max(most, busy)
		crew.Wait(ctx, 120*time.Millisecond) // InnoDB's list of transactions is up to 100 ms old
	}
	return most
}
