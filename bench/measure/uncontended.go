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

// MeasureUncontended measures one client that locks a key that nobody else wants: all contestants in one process, a few
// cycles each, in turns.
func (l *Lab) MeasureUncontended(ctx context.Context) error {
	const name = "uncontended"
	l.Tell(name, 0, 2)
	job := crew.Cycle{Key: key(0), Rounds: l.Uncontended.Rounds, Block: l.Uncontended.Block, Least: l.Uncontended.Least, Seed: l.Seed}
	for _, c := range l.entrants {
		job.Entrants = append(job.Entrants, l.entrant(c, lease, 1))
	}
	worker, err := crew.Start()
	if err != nil {
		return err
	}
	defer worker.Close()
	err = errors.Join(worker.Give(ctx, crew.Job{Cycle: &job}), worker.Tell(crew.Go), worker.Tell(crew.Stop))
	if err != nil {
		return err
	}
	report, err := worker.Await(ctx, crew.Done, time.Hour)
	if err != nil {
		return err
	}
	l.Tell(name, 1, 2)
	for i, c := range l.entrants {
		cycled := report.Cycles[i]
		if cycled.Error != "" {
			l.missing(c, name, errors.New(cycled.Error))
			continue
		}
		trips, err := l.roundTrips(ctx, c)
		if err != nil {
			l.missing(c, "round trips", err)
		}
		l.run.Uncontended = append(l.run.Uncontended, results.Uncontended{
			Contestant: c.Name, Cycles: len(cycled.Latencies), Rounds: slices.Clone(cycled.Rounds),
			P50: time.Duration(results.Quantile(cycled.Latencies, 0.5)), P99: time.Duration(results.Quantile(cycled.Latencies, 0.99)),
			RoundTrips: trips, Allocs: cycled.Allocs, AllocBytes: cycled.AllocBytes,
		})
	}
	l.Tell(name, 2, 2)
	return nil
}

// roundTrips counts the round trips of a cycle on the wire.
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
