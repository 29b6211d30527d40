package results

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// wanted is the confidence that intervals are made for, as benchstat does.
const wanted = 0.95

// Interval is a median with its confidence interval.
type Interval struct {
	Center, Lo, Hi float64
	// Confidence is what the interval attains. It is at least 0.95 from six values on. Fewer cannot
	// reach that: the interval is then all of the sample, and this says how little that means. 0
	// with a Center is a single value, all 0 is no value.
	Confidence float64
}

// Median is the median of a sample. Nothing is assumed of the distribution: times of locks have
// long tails and several humps.
func Median(sample []float64) Interval {
	if len(sample) == 0 {
		return Interval{}
	}
	sorted := slices.Sorted(slices.Values(sample))
	summary := benchmath.AssumeNothing.Summary(benchmath.NewSample(sorted, &benchmath.DefaultThresholds), wanted)
	i := Interval{summary.Center, summary.Lo, summary.Hi, summary.Confidence}
	if math.IsInf(i.Lo, 0) || math.IsInf(i.Hi, 0) {
		// The true median is outside of the sample only if all values fell on the same side of it.
		i.Lo, i.Hi = sorted[0], sorted[len(sorted)-1]
		i.Confidence = 1 - 2*math.Pow(0.5, float64(len(sorted)))
	}
	return i
}

// Ratio is the median of a's values divided by b's of the same index. As these were measured side
// by side, what disturbs the machine for a while is in both and cancels out. Pairs that one of them
// lacks, or with a b that is not positive, are left out.
func Ratio(a, b []float64) Interval {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return Median(ratios)
}
