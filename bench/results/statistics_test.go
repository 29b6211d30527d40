package results

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		sample     []float64
		center     float64
		lo, hi     float64
		confidence float64 // lower bound
	}{
		{"nothing", nil, 0, 0, 0, 0},
		{"one value", []float64{7}, 7, 7, 7, 0},
		{"three values are all of the interval", []float64{3, 1, 2}, 2, 1, 3, 0.75},
		{"five values do not reach 95 %", []float64{5, 4, 3, 2, 1}, 3, 1, 5, 0.9375},
		{"six values do", []float64{6, 5, 4, 3, 2, 1}, 3.5, 1, 6, 0.95},
		{"eleven values leave the extremes out", []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1e9}, 6, 2, 9, 0.95},
	} {
		got := Median(c.sample)
		require.Equal(t, []float64{c.center, c.lo, c.hi}, []float64{got.Center, got.Lo, got.Hi}, c.name)
		require.GreaterOrEqual(t, got.Confidence, c.confidence, c.name)
		require.LessOrEqual(t, got.Confidence, 1.0, c.name)
	}
}

func TestRatioIsOfPairs(t *testing.T) {
	t.Parallel()
	// The machine becomes ten times slower half-way: the two medians show nothing, the pairs do.
	a, b := []float64{11, 11, 11, 110, 110, 110, 110}, []float64{10, 10, 10, 100, 100, 100, 100}
	got := Ratio(a, b)
	for _, value := range []float64{got.Center, got.Lo, got.Hi} {
		require.InDelta(t, 1.1, value, 1e-9)
	}
}

func TestRatioLeavesOutWhatHasNoPair(t *testing.T) {
	t.Parallel()
	require.Equal(t, 2.0, Ratio([]float64{4, 1, 9}, []float64{2, 0}).Center, "of the one pair")
	require.Zero(t, Ratio([]float64{1}, []float64{0}))
	require.Zero(t, Ratio([]float64{0}, []float64{1}))
}

func TestQuantile(t *testing.T) {
	sample := []int64{5, 1, 4, 2, 3}
	require.EqualValues(t, 3, Quantile(sample, 0.5))
	require.EqualValues(t, 5, Quantile(sample, 0.99))
	require.EqualValues(t, 1, Quantile(sample, 0))
	require.Zero(t, Quantile(nil, 0.5))
	require.Equal(t, []int64{5, 1, 4, 2, 3}, sample, "the sample is left as it was")
}
