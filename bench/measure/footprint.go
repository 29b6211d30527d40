package measure

import (
	"context"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/results"
)

// MeasureFootprint measures what one process needs whose callers hold a key each, or wait for the
// same one, while nothing happens.
func (l *Lab) MeasureFootprint(ctx context.Context) (err error) {
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
				Contestant: c.Name, Callers: each.callers, OneKey: each.part == contest.Waiters, For: l.Footprint.For,
			})
		}
	}
	l.run.Footprints, err = fill(ctx, l, "footprint", 1, all,
		func(f *results.Footprint) (string, *[]results.Needs) { return f.Contestant, &f.Rounds }, l.footprint)
	return err
}

// connections are those of a process whose callers need none while they hold or wait.
const connections = 10

func (l *Lab) footprint(ctx context.Context, c contest.Contestant, f results.Footprint) (results.Needs, error) {
	job := crew.Footprint{
		Entrant: l.entrant(c, 0, connections), Callers: f.Callers, OneKey: f.OneKey, For: f.For,
	}
	if c.In(contest.Holders) && !f.OneKey {
		job.Entrant.Environment.Contenders = f.Callers
	}
	reports, err := l.crew.Run(ctx, []crew.Job{{Footprint: &job}}, func() {})
	if err != nil {
		return results.Needs{}, err
	}
	l.failed(c, "footprint", reports[0])
	return results.Needs(*reports[0].Footprint), nil
}
