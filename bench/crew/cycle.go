package crew

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// cycle measures a lock that nobody else wants.
func (w *worker) cycle(job Cycle) (report Message, err error) {
	ctx := context.Background()
	clients := make([]contest.Client, len(job.Entrants))
	report.Cycles = make([]Cycled, len(job.Entrants))
	fail := func(i int, err error) {
		report.Cycles[i].Error = err.Error()
		clients[i] = nil
	}
	nothing := func(context.Context, contest.Tx) error { return nil }
	keys := []string{job.Key}
	for i, e := range job.Entrants {
		if clients[i], err = e.open(ctx); err == nil {
			defer clients[i].Close()
			err = warm(ctx, clients[i], keys)
		}
		if err != nil {
			fail(i, err)
		}
	}
	if err := w.begin(); err != nil {
		return report, err
	}
	random := rand.New(rand.NewPCG(job.Seed, 0))
	for range job.Rounds {
		for _, i := range random.Perm(len(clients)) {
			if clients[i] == nil {
				continue
			}
			latencies, err := block(ctx, job, clients[i], keys, nothing)
			if err != nil {
				fail(i, err)
				continue
			}
			cycled := &report.Cycles[i]
			cycled.Latencies = append(cycled.Latencies, latencies...)
			cycled.Rounds = append(cycled.Rounds, results.Quantile(latencies, 0.5))
		}
	}
	for i, client := range clients {
		if client != nil {
			report.Cycles[i].Allocs, report.Cycles[i].AllocBytes, err = allocations(ctx, client, keys)
			if err != nil {
				fail(i, err)
			}
		}
	}
	return report, w.expect(Stop)
}

// block is what one entrant does in one round.
func block(ctx context.Context, job Cycle, client contest.Client, keys []string, work contest.Work) ([]int64, error) {
	var latencies []int64
	end := Now() + int64(job.Block)
	for before := Now(); before < end || len(latencies) < job.Least; {
		if err := client.Hold(ctx, keys, work); err != nil {
			return nil, err
		}
		after := Now()
		latencies = append(latencies, after-before)
		before = after
	}
	return slices.Clip(latencies), nil
}
