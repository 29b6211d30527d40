package measure

import (
	"context"
	"slices"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/results"
)

// MeasureFootprint measures what one process needs whose callers hold a key each, or wait for the
// same one, while nothing happens.
func (l *Lab) MeasureFootprint(ctx context.Context) error {
	var all []results.Footprint
	for _, each := range []struct {
		part    contest.Part
		callers int
	}{
		{contest.Holders, l.Footprint.Holders},
		{contest.Claimers, l.Footprint.Claimers},
		{contest.Waiters, l.Footprint.Waiters},
	} {
		for _, c := range l.in(each.part) {
			all = append(all, results.Footprint{
				Contestant: c.Name, Callers: each.callers, OneKey: each.part == contest.Waiters,
			})
		}
	}
	err := rounds(ctx, l, "footprint", 1, pointers(all), func(f *results.Footprint) error {
		c, err := contest.Find(f.Contestant)
		if err != nil {
			return err
		}
		if err := l.footprint(ctx, c, f); err != nil {
			l.missing(c, "footprint", err)
		}
		return nil
	})
	l.run.Footprints = slices.DeleteFunc(all, func(f results.Footprint) bool { return f.Memory == 0 })
	return err
}

// footprint needs few connections, unless each caller holds one.
func (l *Lab) footprint(ctx context.Context, c contest.Contestant, f *results.Footprint) error {
	job := crew.Footprint{Entrant: l.entrant(c, 0, 10), Callers: f.Callers, OneKey: f.OneKey, For: l.Footprint.For}
	if c.In(contest.Holders) && !f.OneKey {
		job.Entrant.Environment.Contenders = f.Callers
	}
	reports, err := l.crew.Run(ctx, []crew.Job{{Footprint: &job}}, func() {})
	if err != nil {
		return err
	}
	l.failed(c, "footprint", reports[0])
	needs := reports[0].Footprint
	f.Began = needs.Began
	f.Memory = float64(needs.Memory) / float64(f.Callers)
	f.Processor = needs.Processor.Seconds() / job.For.Seconds()
	return nil
}
