package crew

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/txlock/txlock/bench/contest"
)

const (
	// warmUp is the number of calls that prepare statements and fill caches.
	warmUp = 8
	// counted is the number of calls over which round trips and allocations are counted.
	counted = 32
	// patient bounds all calls of a round, which would hang forever if a lock was left behind.
	patient = 25 * time.Second
)

// turns measures locks that nobody else wants, call by call in turns. So all meet the same machine:
// what it does for a while, and how its kernel wakes the ends of a connection. The speed of a
// connection depends on the cores that its two ends run on, by a half and more, and stays the same
// while it is open: hence one round is one job.
func (w *worker) turns(job Turns) (report Message, err error) {
	if err := w.begin(); err != nil {
		return report, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	report.Turned = make([]Turned, len(job.Entrants))
	callers := make([]*caller, len(job.Entrants))
	for i, entrant := range job.Entrants {
		callers[i] = &caller{keys: job.Keys, atOnce: job.AtOnce, turned: &report.Turned[i]}
		callers[i].open(ctx, entrant)
		defer callers[i].close()
	}
	for range job.Calls {
		for _, c := range callers {
			c.measure(ctx)
		}
	}
	for _, c := range callers {
		if job.Allocs && c.turned.Error == "" {
			c.countAllocs(ctx)
		}
	}
	return report, w.expect(Stop)
}

// caller is an entrant of turns.
type caller struct {
	client contest.Client // nil if it could not be opened
	keys   int
	atOnce int
	turned *Turned
}

func (c *caller) open(ctx context.Context, entrant Entrant) {
	var err error
	if c.client, err = entrant.open(ctx); err == nil {
		err = c.repeat(ctx, warmUp)
	}
	c.failed(err)
}

// failed notes an error, after which the caller takes no further part.
func (c *caller) failed(err error) {
	if err != nil && c.turned.Error == "" {
		c.turned.Error = err.Error()
	}
}

func (c *caller) close() {
	if c.client != nil {
		c.failed(c.client.Close())
	}
}

func (c *caller) measure(ctx context.Context) {
	if c.turned.Error != "" {
		return
	}
	chosen := c.choose() // not a part of the call
	before := Now()
	err := call(ctx, c.client, chosen)
	c.turned.Latencies = append(c.turned.Latencies, Now()-before)
	c.failed(err)
}

// countAllocs counts those of a call, over all goroutines of the process.
func (c *caller) countAllocs(ctx context.Context) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.failed(c.repeat(ctx, counted))
	runtime.ReadMemStats(&after)
	c.turned.Allocs = float64(after.Mallocs-before.Mallocs) / counted
}

// choose is a new choice of the keys, sorted.
func (c *caller) choose() (chosen []string) {
	numbers := make(map[int]bool)
	for len(chosen) < c.atOnce {
		if number := rand.IntN(c.keys); !numbers[number] {
			numbers[number] = true
			chosen = append(chosen, Key(number))
		}
	}
	slices.Sort(chosen)
	return chosen
}

func call(ctx context.Context, client contest.Client, keys []string) error {
	return client.Hold(ctx, keys, func(context.Context, contest.Tx) error { return nil })
}

func (c *caller) repeat(ctx context.Context, times int) error {
	for range times {
		if err := call(ctx, c.client, c.choose()); err != nil {
			return err
		}
	}
	return nil
}

// RoundTrips returns the average number of round trips of a call. trips returns the number on the
// wire so far.
func RoundTrips(ctx context.Context, of contest.Contestant, env contest.Environment, trips func() int) (
	perCall float64, err error,
) {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	client, err := of.Open(ctx, env)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	c := caller{client: client, keys: 1, atOnce: 1}
	if err := c.repeat(ctx, warmUp); err != nil {
		return 0, err
	}
	before := trips()
	if err := c.repeat(ctx, counted); err != nil {
		return 0, err
	}
	return float64(trips()-before) / counted, nil
}
