package crew

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// cycle measures a lock that nobody else wants. Each block opens its own client. The speed of a
// connection depends on the cores that its two ends run on, by a half and more, and stays the same
// while the connection is open.
func (w *worker) cycle(job Cycle) (report Message, err error) {
	report.Cycles = make([]Cycled, len(job.Entrants))
	if err := w.begin(); err != nil {
		return report, err
	}
	random := rand.New(rand.NewPCG(job.Seed, 0))
	for round := job.first(); round < job.Rounds; round++ {
		for _, i := range job.order(random) {
			cycled := &report.Cycles[i]
			if cycled.Error != "" {
				continue
			}
			err := cycled.measure(job, job.Entrants[i], round)
			if err != nil {
				cycled.Error = err.Error()
			}
		}
		w.say(Message{Event: Turned})
	}
	return report, w.expect(Stop)
}

// first is the number of the first round. Round -1 warms up the servers.
func (c Cycle) first() int {
	if c.WarmUp > 0 {
		return -1
	}
	return 0
}

// Turns is how many rounds there are, with the one that warms up.
func (c Cycle) Turns() int { return c.Rounds - c.first() }

// order is a random order of the entrants. Those on the same server stay next to each other,
// because they are compared.
func (c Cycle) order(random *rand.Rand) (order []int) {
	var servers []string
	of := make(map[string][]int)
	for i, e := range c.Entrants {
		server := e.Environment.Addresses[0]
		if of[server] == nil {
			servers = append(servers, server)
		}
		of[server] = append(of[server], i)
	}
	for _, s := range random.Perm(len(servers)) {
		some := of[servers[s]]
		for _, i := range random.Perm(len(some)) {
			order = append(order, some[i])
		}
	}
	return order
}

// patient bounds a block, which would hang forever if a lock was left behind.
const patient = 20 * time.Second

// measure runs one block, and counts allocations after the last one.
func (c *Cycled) measure(job Cycle, entrant Entrant, round int) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	keys := []string{job.Key}
	client, err := entrant.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := warm(ctx, client, keys); err != nil {
		return err
	}
	if round < 0 {
		job.Block = job.WarmUp
	}
	latencies, err := block(ctx, job, client, keys)
	if err != nil || round < 0 {
		return err
	}
	c.Latencies = append(c.Latencies, latencies...)
	c.Rounds = append(c.Rounds, results.Quantile(latencies, 0.5))
	if round == job.Rounds-1 {
		c.Allocs, c.AllocBytes, err = allocations(ctx, client, keys)
	}
	return err
}

// block runs the cycles of one entrant in one round.
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
