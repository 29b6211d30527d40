package crew

import (
	"context"
	"errors"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// alternate measures two locks that nobody else wants, call by call in turns. So both meet the same
// machine: what it does for a while, and how its kernel wakes the ends of a connection. Each round
// opens its own clients.
func (w *worker) alternate(job Alternate) (report Message, err error) {
	if err := w.begin(); err != nil {
		return report, err
	}
	report.Alternated = &Alternated{}
	for range job.Rounds {
		medians, err := job.round()
		if err != nil {
			return report, err
		}
		report.Alternated.First = append(report.Alternated.First, medians[0])
		report.Alternated.Second = append(report.Alternated.Second, medians[1])
	}
	return report, w.expect(Stop)
}

// round is one round, of which it returns the medians.
func (job Alternate) round() (medians [2]float64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	keys := []string{job.Key}
	var clients [2]contest.Client
	for i, entrant := range []Entrant{job.First, job.Second} {
		if clients[i], err = entrant.open(ctx); err != nil {
			return medians, err
		}
		defer func() { err = errors.Join(err, clients[i].Close()) }()
		if err := warm(ctx, clients[i], keys); err != nil {
			return medians, err
		}
	}
	var latencies [2][]int64
	for range job.Calls {
		for i, client := range clients {
			before := Now()
			if err := repeat(ctx, client, keys, 1); err != nil {
				return medians, err
			}
			latencies[i] = append(latencies[i], Now()-before)
		}
	}
	for i := range medians {
		medians[i] = results.Quantile(latencies[i], 0.5)
	}
	return medians, nil
}
