package crew

import (
	"context"
	"runtime"

	"github.com/txlock/txlock/bench/contest"
)

const (
	// warmUp is the number of cycles that prepare statements and fill caches.
	warmUp = 8
	// counted is the number of cycles over which round trips and allocations are counted.
	counted = 32
)

func warm(ctx context.Context, client contest.Client, keys []string) error {
	return repeat(ctx, client, keys, warmUp)
}

func repeat(ctx context.Context, client contest.Client, keys []string, times int) error {
	for range times {
		if err := client.Hold(ctx, keys, func(context.Context, contest.Tx) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// allocations is the average per cycle, over all goroutines of the process.
func allocations(ctx context.Context, client contest.Client, keys []string) (count, bytes float64, err error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if err := repeat(ctx, client, keys, counted); err != nil {
		return 0, 0, err
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / counted, float64(after.TotalAlloc-before.TotalAlloc) / counted, nil
}

// RoundTrips returns the average number of round trips per cycle. trips returns the number on the
// wire so far.
func RoundTrips(ctx context.Context, c contest.Contestant, env contest.Environment, key string, trips func() int,
) (perCycle float64, err error) {
	client, err := c.Open(ctx, env)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	keys := []string{key}
	if err := warm(ctx, client, keys); err != nil {
		return 0, err
	}
	before := trips()
	if err := repeat(ctx, client, keys, counted); err != nil {
		return 0, err
	}
	return float64(trips()-before) / counted, nil
}
