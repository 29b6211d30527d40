package measure

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/results"
)

// turns has contestants lock without contention, call by call in turns, on new connections. It
// returns what each found; those that failed are noted, and have no latencies.
func (l *Lab) turns(ctx context.Context, name string, entrants []contest.Contestant, job crew.Turns) (
	found []crew.Turned, err error,
) {
	for _, c := range entrants {
		job.Entrants = append(job.Entrants, l.entrant(c, lease, 1))
	}
	reports, err := l.crew.Run(ctx, []crew.Job{{Turns: &job}}, func() {})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		for _, c := range entrants {
			l.missing(c, name, err)
		}
		return make([]crew.Turned, len(entrants)), nil
	}
	for i, c := range entrants {
		if turned := &reports[0].Turned[i]; turned.Error != "" {
			l.missing(c, name, errors.New(turned.Error))
			turned.Latencies = nil
		}
	}
	return reports[0].Turned, nil
}

// MeasureUncontended measures one client that locks a key that nobody else wants.
func (l *Lab) MeasureUncontended(ctx context.Context) (err error) {
	l.run.Uncontended, err = l.uncontended(ctx, "uncontended", l.Uncontended)
	return err
}

// uncontended has the contestants of a server take turns, and one server come after the other, so
// many rounds.
func (l *Lab) uncontended(ctx context.Context, name string, plan TurnsPlan) (all []results.Uncontended, err error) {
	groups, latencies, medians := l.byServer(contest.Times), make(map[string][]int64), make(map[string][]float64)
	err = rounds(ctx, l, name, plan.Rounds, groups, func(group []contest.Contestant) error {
		group = shuffled(group)
		turned, err := l.turns(ctx, name, group, crew.Turns{Calls: plan.Calls})
		for i, one := range turned {
			of := group[i].Name
			latencies[of] = append(latencies[of], one.Latencies...)
			medians[of] = append(medians[of], results.Quantile(one.Latencies, 0.5))
		}
		return err
	})
	for _, c := range slices.Concat(groups...) {
		if found := latencies[c.Name]; len(found) > 0 {
			all = append(all, results.Uncontended{
				Contestant: c.Name, Calls: len(found), Rounds: medians[c.Name],
				P50:        time.Duration(results.Quantile(found, 0.5)),
				P99:        time.Duration(results.Quantile(found, 0.99)),
				RoundTrips: l.roundTrips(ctx, c),
			})
		}
	}
	return all, err
}

// roundTrips is the number of round trips of a call on the wire. It is counted once: a network in
// between does not change it.
func (l *Lab) roundTrips(ctx context.Context, c contest.Contestant) float64 {
	if trips, counted := l.trips[c.Name]; counted {
		return trips
	}
	trips, err := func() (trips float64, err error) {
		proxy, err := l.Testbed.Proxied(c.Server)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, proxy.Close()) }()
		env := l.environment(c, lease, 1)
		env.Address = proxy.Address
		return crew.RoundTrips(ctx, c, env, proxy.Bursts)
	}()
	if err != nil {
		l.missing(c, "uncontended, round trips", err)
	}
	l.trips[c.Name] = trips
	return trips
}

// byServer are the contestants that take part, by their servers.
func (l *Lab) byServer(parts contest.Part) (groups [][]contest.Contestant) {
	for _, server := range contest.Servers {
		group := slices.DeleteFunc(l.in(parts), func(c contest.Contestant) bool { return c.Server != server })
		if len(group) > 0 {
			groups = append(groups, group)
		}
	}
	return groups
}
