package crew

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// cycle measures a lock that nobody else wants. Each block has a client of its own: how fast a connection is depends on the
// cores that its two ends happen to be on, by a half and more, and stays so as long as it is open.
func (w *worker) cycle(job Cycle) (report Message, err error) {
	report.Cycles = make([]Cycled, len(job.Entrants))
	if err := w.begin(); err != nil {
		return report, err
	}
	random := rand.New(rand.NewPCG(job.Seed, 0))
	for round := range job.Rounds {
		for _, i := range random.Perm(len(job.Entrants)) {
			cycled := &report.Cycles[i]
			if cycled.Error != "" {
				continue
			}
			if err := cycled.measure(job, job.Entrants[i], round == job.Rounds-1); err != nil {
				cycled.Error = err.Error()
			}
		}
	}
	return report, w.expect(Stop)
}

// measure does one block, and counts allocations behind the last one.
func (c *Cycled) measure(job Cycle, entrant Entrant, last bool) (err error) {
	ctx := context.Background()
	keys := []string{job.Key}
	client, err := entrant.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := warm(ctx, client, keys); err != nil {
		return err
	}
	latencies, err := block(ctx, job, client, keys)
	if err != nil {
		return err
	}
	c.Latencies = append(c.Latencies, latencies...)
	c.Rounds = append(c.Rounds, results.Quantile(latencies, 0.5))
	if last {
		c.Allocs, c.AllocBytes, err = allocations(ctx, client, keys)
	}
	return err
}

// block is what one entrant does in one round.
func block(ctx context.Context, job Cycle, client contest.Client, keys []string) ([]int64, error) {
	var latencies []int64
	end := Now() + int64(job.Block)
	for before := Now(); before < end || len(latencies) < job.Least; {
		if err := repeat(ctx, client, keys, 1); err != nil {
			return nil, err
		}
		after := Now()
		latencies = append(latencies, after-before)
		before = after
	}
	return latencies, nil
}
