package report

import (
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
