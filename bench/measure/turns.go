package measure

import (
	"context"
	"fmt"
	"slices"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/results"
)

// MeasureTurns measures the contestants of txlock call by call in turns with the same promise by
// hand, and with the bare row.
func (l *Lab) MeasureTurns(ctx context.Context) error {
	entrants := l.in(contest.Times)
	var pairs [][2]contest.Contestant
	for _, c := range entrants {
		for _, other := range slices.Compact([]string{c.Floor, c.Bare}) {
			if at := slices.IndexFunc(entrants, func(e contest.Contestant) bool { return e.Name == other }); at >= 0 {
				pairs = append(pairs, [2]contest.Contestant{c, entrants[at]})
			}
		}
	}
	for i, pair := range pairs {
		l.Tell("turns", i, len(pairs))
		job := crew.Alternate{
			First: l.entrant(pair[0], lease, 1), Second: l.entrant(pair[1], lease, 1), Key: key(0),
			Rounds: l.Turns.Rounds, Calls: l.Turns.Calls,
		}
		reports, err := l.crew.Run(ctx, []crew.Job{{Alternate: &job}}, func() {})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			l.missing(pair[0], "turns", fmt.Errorf("beside %s: %w", pair[1].Name, err))
			continue
		}
		medians := reports[0].Alternated
		l.run.Turns = append(l.run.Turns, results.Turns{
			Contestant: pair[0].Name, With: pair[1].Name, Rounds: medians.First, WithRounds: medians.Second,
		})
	}
	l.Tell("turns", len(pairs), len(pairs))
	return nil
}
