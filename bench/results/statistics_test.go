package results

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sample     []float64
		center     float64
		lo, hi     float64
		confidence float64 // at least
	}{
		"nothing":                              {nil, 0, 0, 0, 0},
		"one value":                            {[]float64{7}, 7, 7, 7, 0},
		"three values are all of the interval": {[]float64{3, 1, 2}, 2, 1, 3, 0.75},
		"five values do not reach 95 %":        {[]float64{5, 4, 3, 2, 1}, 3, 1, 5, 0.9375},
		"six values do":                        {[]float64{6, 5, 4, 3, 2, 1}, 3.5, 1, 6, 0.95},
		"eleven leave the extremes out":        {[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1e9}, 6, 2, 9, 0.95},
	} {
		got := Median(c.sample)
		require.GreaterOrEqual(t, got.Confidence, c.confidence, name)
		require.LessOrEqual(t, got.Confidence, 1.0, name)
		got.Confidence = 0
		require.Equal(t, Interval{Center: c.center, Lo: c.lo, Hi: c.hi}, got, name)
	}
}

func TestRatioIsOfPairs(t *testing.T) {
	t.Parallel()
	// The machine becomes ten times slower half-way: the two medians show nothing, the pairs do.
	got := Ratio([]float64{11, 11, 11, 110, 110, 110, 110}, []float64{10, 10, 10, 100, 100, 100, 100})
	for _, figure := range []float64{got.Center, got.Lo, got.Hi} {
		require.InDelta(t, 1.1, figure, 1e-9)
	}
	require.EqualValues(t, 2, Ratio([]float64{4, 1, 9}, []float64{2, 0}).Center, "of the only pair")
	require.Zero(t, Ratio([]float64{1}, []float64{0}), "there is no pair")
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	sample := []int64{5, 1, 4, 2, 3}
	require.EqualValues(t, 3, Quantile(sample, 0.5))
	require.EqualValues(t, 5, Quantile(sample, 0.99))
	require.EqualValues(t, 1, Quantile(sample, 0))
	require.Zero(t, Quantile(nil, 0.5))
	require.Equal(t, []int64{5, 1, 4, 2, 3}, sample, "the sample is left as it was")
}
