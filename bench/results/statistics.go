package results

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// wanted is the confidence of the intervals, the same as in benchstat.
const wanted = 0.95

// Interval is a median with its confidence interval.
type Interval struct {
	Center, Lo, Hi float64
	// Confidence is the confidence that the interval reaches. It is at least 0.95 from six values
	// on. With fewer values the interval is the whole sample, and its confidence is lower. A
	// Confidence of 0 with a Center means a single value. All fields are 0 if there is no value.
	Confidence float64
}

// Median is the median of a sample. It assumes nothing about the distribution: lock times have long
// tails and several peaks.
func Median(sample []float64) Interval {
	if len(sample) == 0 {
		return Interval{}
	}
	sorted := slices.Sorted(slices.Values(sample))
	summary := benchmath.AssumeNothing.Summary(benchmath.NewSample(sorted, &benchmath.DefaultThresholds), wanted)
	i := Interval{summary.Center, summary.Lo, summary.Hi, summary.Confidence}
	if math.IsInf(i.Lo, 0) || math.IsInf(i.Hi, 0) {
		// The true median is outside the sample only if all values fell on the same side of it.
		i.Lo, i.Hi = sorted[0], sorted[len(sorted)-1]
		i.Confidence = 1 - 2*math.Pow(0.5, float64(len(sorted)))
	}
	return i
}

// Ratio is the median of a[i]/b[i]. The two values of a pair were measured side by side, so
// whatever disturbs the machine for a while affects both and cancels out. Ratio leaves out pairs in
// which a value is missing, or b's is not positive.
func Ratio(a, b []float64) Interval {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return Median(ratios)
}

// Quantile is the smallest value of the sample that at least a share q of it does not exceed. It is
// 0 for an empty sample.
func Quantile(sample []int64, q float64) float64 {
	if len(sample) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(sample))
	index := int(math.Ceil(q*float64(len(sorted)))) - 1
	return float64(sorted[min(max(index, 0), len(sorted)-1)])
}
