package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/txlock/txlock/bench/results"
)

// nothing stands in a table for a missing figure.
const nothing = "–"

// duration formats a time with three digits. A duration of 0 was not measured.
func duration(d time.Duration) string {
	switch n := float64(d); {
	case d <= 0:
		return nothing
	case n < 999.5:
		return digits(n) + " ns"
	case n < 999.5e3:
		return digits(n/1e3) + " µs"
	case n < 999.5e6:
		return digits(n/1e6) + " ms"
	default:
		return digits(n/1e9) + " s"
	}
}

// number formats a figure with three digits, or as nothing.
func number(x float64) string {
	if x <= 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return nothing
	}
	return digits(x)
}

// count formats a number of things. Here 0 is a figure.
func count(n int) string { return grouped(strconv.Itoa(n)) }

func share(x float64) string {
	switch {
	case x <= 0:
		return nothing
	case x < 0.0995:
		return fmt.Sprintf("%.1f %%", 100*x)
	default:
		return fmt.Sprintf("%.0f %%", 100*x)
	}
}

func factor(x float64) string {
	if x <= 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return nothing
	}
	return digits(x) + " ×"
}

// interval formats a ratio with its interval.
func interval(i results.Interval) string {
	switch {
	case i.Center == 0:
		return nothing
	case i.Confidence == 0:
		return fmt.Sprintf("%.2f", i.Center)
	default:
		return fmt.Sprintf("%.2f (%.2f–%.2f)", i.Center, i.Lo, i.Hi)
	}
}

// spread is the range of some ratios, or of some durations that it formats.
func spread(all []float64, format func(float64) string) string {
	if len(all) == 0 {
		return nothing
	}
	low, high := format(slices.Min(all)), format(slices.Max(all))
	if low == high {
		return low
	}
	return low + " to " + high
}

func twoDigits(x float64) string { return fmt.Sprintf("%.2f", x) }

func kilobytes(bytes float64) string { return digits(bytes/1e3) + " kB" }

func nanoseconds(x float64) string { return duration(time.Duration(x)) }

func digits(x float64) string {
	switch {
	case x >= 99.95:
		return grouped(strconv.FormatFloat(x, 'f', 0, 64))
	case x >= 9.995:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case x >= 0.0995:
		return strconv.FormatFloat(x, 'f', 2, 64)
	default:
		return strconv.FormatFloat(x, 'g', 2, 64)
	}
}

// grouped puts narrow spaces between groups of thousands.
func grouped(whole string) string {
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "\u202f" + whole[i:]
	}
	return whole
}

// tick formats a value for an axis. Such values are round, so it is short.
func tick(x float64) string {
	if x >= 1000 {
		return grouped(strconv.FormatFloat(x, 'f', 0, 64))
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

// tickTime formats nanoseconds for an axis.
func tickTime(x float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, " s"}, {1e6, " ms"}, {1e3, " µs"}} {
		if x >= unit.size {
			return tick(x/unit.size) + unit.name
		}
	}
	return tick(x) + " ns"
}

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
