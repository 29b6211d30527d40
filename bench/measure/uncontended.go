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

// MeasureUncontended measures one client that locks a key that nobody else wants.
func (l *Lab) MeasureUncontended(ctx context.Context) (err error) {
	l.run.Uncontended, err = l.cycles(ctx, "uncontended", l.Uncontended)
	return err
}

// cycles runs all contestants in one process. They take turns, a few cycles each.
func (l *Lab) cycles(ctx context.Context, name string, plan UncontendedPlan) (all []results.Uncontended, err error) {
	entrants := l.in(contest.Times)
	job := crew.Cycle{
		Key: key(0), Rounds: plan.Rounds, Block: plan.Block, Least: plan.Least, WarmUp: plan.WarmUp, Seed: l.Seed,
	}
	for _, c := range entrants {
		job.Entrants = append(job.Entrants, l.entrant(c, lease, 1))
	}
	total := job.Turns() + 1 // round trips are counted at the end
	worker, err := crew.Start()
	if err != nil {
		return nil, err
	}
	defer worker.Close()
	err = errors.Join(worker.Give(ctx, crew.Job{Cycle: &job}), worker.Tell(crew.Go), worker.Tell(crew.Stop))
	if err != nil {
		return nil, err
	}
	for round := range total - 1 {
		l.Tell(name, round, total)
		if _, err := worker.Await(ctx, crew.Turned, time.Duration(len(entrants))*time.Minute); err != nil {
			return nil, err
		}
	}
	report, err := worker.Await(ctx, crew.Done, time.Minute)
	if err != nil {
		return nil, err
	}
	l.Tell(name, total-1, total)
	for i, c := range entrants {
		cycled := report.Cycles[i]
		if cycled.Error != "" {
			l.missing(c, name, errors.New(cycled.Error))
			continue
		}
		all = append(all, l.cycled(ctx, name, c, cycled))
	}
	l.Tell(name, total, total)
	return all, nil
}

func (l *Lab) cycled(ctx context.Context, name string, c contest.Contestant, cycled crew.Cycled) results.Uncontended {
	trips, counted := l.trips[c.Name] // a network in between does not change their number
	if !counted {
		var err error
		if trips, err = l.roundTrips(ctx, c); err != nil {
			l.missing(c, name+", round trips", err)
		}
		l.trips[c.Name] = trips
	}
	return results.Uncontended{
		Contestant: c.Name, Cycles: len(cycled.Latencies), Rounds: slices.Clone(cycled.Rounds),
		Mean:       mean(cycled.Latencies),
		P50:        time.Duration(results.Quantile(cycled.Latencies, 0.5)),
		P99:        time.Duration(results.Quantile(cycled.Latencies, 0.99)),
		RoundTrips: trips, Allocs: cycled.Allocs, AllocBytes: cycled.AllocBytes,
	}
}

func mean(latencies []int64) time.Duration {
	var sum int64
	for _, one := range latencies {
		sum += one
	}
	return time.Duration(sum / int64(max(1, len(latencies))))
}

// roundTrips returns the number of round trips of a cycle on the wire.
func (l *Lab) roundTrips(ctx context.Context, c contest.Contestant) (float64, error) {
	proxies, err := l.Testbed.Proxied(c.Server)
	if err != nil {
		return 0, err
	}
	defer proxies.Close()
	env := l.environment(c, lease, 1)
	env.Addresses = proxies.Addresses
	return crew.RoundTrips(ctx, c, env, key(0), proxies.RoundTrips)
}
