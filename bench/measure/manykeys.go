package measure

import (
	"context"
	"fmt"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/results"
)

// MeasureManyKeys measures how throughput grows with the number of keys, for locks with few slots
// and with many.
func (l *Lab) MeasureManyKeys(ctx context.Context) error {
	p, entrants := l.ManyKeys, l.in(contest.ManyKeys)
	total, done := len(p.Keys)*p.Rounds*len(entrants), 0
	for _, count := range p.Keys {
		some := make([]string, count)
		for i := range some {
			some[i] = key(i)
		}
		cells := make(map[string]*results.ManyKeys)
		for range p.Rounds {
			for _, c := range l.shuffled(entrants) {
				l.Tell("many keys", done, total)
				done++
				if cells[c.Name] == nil {
					cells[c.Name] = &results.ManyKeys{
						Contestant: c.Name, Slots: c.Slots, Keys: count,
						Contenders: p.Contenders, Hold: p.Hold,
					}
				}
				perSecond, err := l.throughput(ctx, c, some)
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err != nil {
					l.missing(c, fmt.Sprintf("keys, %d", count), err)
					continue
				}
				cells[c.Name].PerSecond = append(cells[c.Name].PerSecond, perSecond)
			}
		}
		for _, c := range entrants {
			if cell := cells[c.Name]; len(cell.PerSecond) > 0 {
				l.run.ManyKeys = append(l.run.ManyKeys, *cell)
			}
		}
	}
	l.Tell("many keys", total, total)
	return nil
}

// throughput is the number of locks per second that the contenders get.
func (l *Lab) throughput(ctx context.Context, c contest.Contestant, some []string) (perSecond float64, err error) {
	l.board.Clear()
	var began, ended int64
	jobs := l.share(c, l.ManyKeys.Contenders, crew.Contend{
		Keys: some, Hold: l.ManyKeys.Hold, Rejoin: results.AtOnce, Board: l.board.Path(), Seed: l.random.Uint64(),
	})
	reports, err := l.crew.Run(ctx, jobs, func() {
		crew.Wait(ctx, crew.Ramp)
		began = crew.Now()
		crew.Wait(ctx, l.ManyKeys.For)
		ended = crew.Now()
	})
	if err != nil {
		return 0, err
	}
	entered := 0
	for _, report := range reports {
		l.failed(c, "keys", report)
		for _, a := range report.Acquisitions {
			if a.In >= began && a.In <= ended {
				entered++
			}
		}
	}
	return float64(entered) * 1e9 / float64(ended-began), nil
}
