package results

import (
	"math"
	"slices"
)

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
