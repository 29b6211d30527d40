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

// MeasureTurns measures each contestant of txlock in turns with the same promise by hand.
func (l *Lab) MeasureTurns(ctx context.Context) error {
	type pair struct {
		contestants []contest.Contestant
		found       *results.Turns
	}
	var pairs []pair
	entrants := l.in(contest.Turns)
	for _, c := range entrants {
		at := slices.IndexFunc(entrants, func(e contest.Contestant) bool { return e.Name == c.ByHand })
		if at >= 0 {
			pairs = append(pairs, pair{
				[]contest.Contestant{c, entrants[at]},
				&results.Turns{Contestant: c.Name, With: c.ByHand},
			})
		}
	}
	err := rounds(ctx, l, "turns", l.Turns.Rounds, pairs, func(p pair) error {
		turned, err := l.turns(ctx, "turns", p.contestants, crew.Turns{Keys: 1, AtOnce: 1, Calls: l.Turns.Calls})
		if err == nil && turned[0].Latencies != nil && turned[1].Latencies != nil {
			p.found.Rounds = append(p.found.Rounds, results.Quantile(turned[0].Latencies, 0.5))
			p.found.WithRounds = append(p.found.WithRounds, results.Quantile(turned[1].Latencies, 0.5))
		}
		return err
	})
	for _, p := range pairs {
		if len(p.found.Rounds) > 0 {
			l.run.Turns = append(l.run.Turns, *p.found)
		}
	}
	return err
}

// MeasureUncontended measures one client that locks a key that nobody else wants.
func (l *Lab) MeasureUncontended(ctx context.Context) (err error) {
	l.run.Uncontended, err = l.uncontended(ctx, "uncontended", l.Uncontended)
	return err
}

func (l *Lab) uncontended(ctx context.Context, name string, plan TurnsPlan) (all []results.Uncontended, err error) {
	groups := l.byServer(contest.Times)
	job := crew.Turns{Keys: 1, AtOnce: 1, Calls: plan.Calls, Allocs: true}
	found, err := l.timed(ctx, name, plan.Rounds, groups, job)
	for _, c := range slices.Concat(groups...) {
		if one := found[c.Name]; len(one.Latencies) > 0 {
			measured := results.Uncontended{
				Contestant: c.Name, Allocs: one.Allocs,
				P50: time.Duration(results.Quantile(one.Latencies, 0.5)),
				P99: time.Duration(results.Quantile(one.Latencies, 0.99)),
			}
			if l.far == nil { // a network in between does not change the round trips
				measured.RoundTrips = l.roundTrips(ctx, c)
			}
			all = append(all, measured)
		}
	}
	return all, err
}

// roundTrips is the number of round trips of a call on the wire, or 0.
func (l *Lab) roundTrips(ctx context.Context, c contest.Contestant) float64 {
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
	return trips
}

// MeasureGrowth measures how the time of a lock grows with its keys, with the keys that are in use,
// and with the distance to the server.
func (l *Lab) MeasureGrowth(ctx context.Context) error {
	p := l.Growth
	for _, keys := range p.KeysOfALock {
		job := crew.Turns{Keys: keys, AtOnce: keys, Calls: p.Calls}
		if err := l.grow(ctx, results.KeysOfALock, float64(keys), p.Rounds, job); err != nil {
			return err
		}
	}
	for _, keys := range p.KeysInUse {
		job := crew.Turns{Keys: keys, AtOnce: 1, Calls: p.Calls}
		if err := l.grow(ctx, results.KeysInUse, float64(keys), p.Rounds, job); err != nil {
			return err
		}
	}
	for _, trip := range p.RoundTrips {
		job := crew.Turns{Keys: 1, AtOnce: 1, Calls: farCalls}
		if err := l.away(trip/2, func() error {
			return l.grow(ctx, results.Distance, float64(trip), 1, job)
		}); err != nil {
			return err
		}
	}
	return nil
}

// farCalls is the number of calls where each takes long, and as long as the one before.
const farCalls = 5

// grow adds a point to the lines of all contestants.
func (l *Lab) grow(ctx context.Context, by string, x float64, count int, job crew.Turns) error {
	groups := l.byServer(contest.Growth)
	found, err := l.timed(ctx, "growth, "+by, count, groups, job)
	for _, c := range slices.Concat(groups...) {
		if len(found[c.Name].Latencies) == 0 {
			continue
		}
		at := slices.IndexFunc(l.run.Growth, func(g results.Growth) bool {
			return g.Contestant == c.Name && g.By == by
		})
		if at < 0 {
			at = len(l.run.Growth)
			l.run.Growth = append(l.run.Growth, results.Growth{Contestant: c.Name, By: by})
		}
		l.run.Growth[at].Points = append(l.run.Growth[at].Points, results.Point{
			X: x, P50: time.Duration(results.Quantile(found[c.Name].Latencies, 0.5)),
		})
	}
	return err
}

// timed has the contestants of a server take turns, and one server come after the other, so many
// rounds. It returns what each found in all rounds, and the allocations of the last.
func (l *Lab) timed(ctx context.Context, name string, count int, groups [][]contest.Contestant, job crew.Turns) (
	map[string]crew.Turned, error,
) {
	found := make(map[string]crew.Turned)
	err := rounds(ctx, l, name, count, groups, func(group []contest.Contestant) error {
		group = l.shuffled(group)
		turned, err := l.turns(ctx, name, group, job)
		for i, one := range turned {
			one.Latencies = append(found[group[i].Name].Latencies, one.Latencies...)
			found[group[i].Name] = one
		}
		return err
	})
	return found, err
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
