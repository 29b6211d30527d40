package report

import (
	"cmp"
	"time"

	"github.com/txlock/txlock/bench/results"
)

// median is that of a figure of all rounds.
func median[Round any](rounds []Round, figure func(Round) float64) float64 {
	var values []float64
	for _, round := range rounds {
		values = append(values, figure(round))
	}
	return results.Median(values).Center
}

func perSecond(n int, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(n) / took.Seconds()
}

// contended summarises a contended run over its rounds.
type contended struct {
	results.Contended
	p50, p99                     time.Duration
	perSecond, utilisation, jain float64
	longestWait                  time.Duration // of all rounds
	overlaps, failed             int
	atLeast                      bool // the end of the run cut off most of the hand-offs
}

// handOff formats the time of a hand-off.
func (c contended) handOff(d time.Duration) string {
	if c.atLeast && d > 0 {
		return "> " + duration(d)
	}
	return duration(d)
}

func sumUpContended(c results.Contended) contended {
	type round = results.ContendedRound
	s := contended{
		Contended:   c,
		p50:         time.Duration(median(c.Rounds, func(r round) float64 { return float64(r.HandOffP50) })),
		p99:         time.Duration(median(c.Rounds, func(r round) float64 { return float64(r.HandOffP99) })),
		utilisation: median(c.Rounds, func(r round) float64 { return r.Utilisation }),
		jain:        median(c.Rounds, func(r round) float64 { return r.Jain }),
		perSecond:   median(c.Rounds, func(r round) float64 { return perSecond(r.Acquisitions, r.Took) }),
	}
	handOffs, cut := 0, 0
	for _, r := range c.Rounds {
		handOffs += r.HandOffs
		cut += r.Cut
		s.longestWait = max(s.longestWait, r.LongestWait)
		s.overlaps += r.Overlaps
		s.failed += r.Failed
	}
	s.atLeast = 2*cut >= max(1, handOffs)
	return s
}

// crowd summarises a crowd over its rounds.
type crowd struct {
	p50, p99 time.Duration // of the wait for the free key
	cut      bool          // the end cut a wait off
	hot      float64       // how often a caller got the hot key, in a second
	busy     int
	overlaps int
	failed   int
}

// free formats the wait for the free key.
func (c crowd) free(d time.Duration) string {
	if c.cut && d > time.Second/10 {
		return "> " + duration(d)
	}
	return duration(d)
}

func sumUpCrowd(c results.Crowd) crowd {
	type round = results.CrowdRound
	s := crowd{
		p50: time.Duration(median(c.Rounds, func(r round) float64 { return float64(r.FreeP50) })),
		p99: time.Duration(median(c.Rounds, func(r round) float64 { return float64(r.FreeP99) })),
		hot: median(c.Rounds, func(r round) float64 { return perSecond(r.Hot, r.Took) }),
	}
	for _, r := range c.Rounds {
		s.cut = s.cut || r.Cut
		s.busy = max(s.busy, r.Busy)
		s.overlaps += r.Overlaps
		s.failed += r.Failed
	}
	return s
}

// hotRow summarises sales over their rounds.
type hotRow struct {
	perSecond float64
	p50, p99  time.Duration
	complaint string
	failed    int
}

func sumUpHotRow(h results.HotRow) hotRow {
	type round = results.HotRowRound
	s := hotRow{
		perSecond: median(h.Rounds, func(r round) float64 { return perSecond(r.Sold, r.Took) }),
		p50:       time.Duration(median(h.Rounds, func(r round) float64 { return float64(r.P50) })),
		p99:       time.Duration(median(h.Rounds, func(r round) float64 { return float64(r.P99) })),
	}
	for _, r := range h.Rounds {
		s.complaint = cmp.Or(s.complaint, r.Complaint)
		s.failed += r.Failed
	}
	return s
}
