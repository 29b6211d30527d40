package results

import (
	"math"
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
		if got.Center != c.center || got.Lo != c.lo || got.Hi != c.hi || got.Confidence < c.confidence ||
			got.Confidence > 1 {
			t.Errorf("%s: Median(%v) = %+v, want %v in [%v, %v] with a confidence of %v or more",
				c.name, c.sample, got, c.center, c.lo, c.hi, c.confidence)
		}
	}
}

func TestMedianLeavesTheSampleAlone(t *testing.T) {
	t.Parallel()
	sample := []float64{3, 1, 2}
	Median(sample)
	if sample[0] != 3 || sample[1] != 1 || sample[2] != 2 {
		t.Errorf("the sample has become %v", sample)
	}
}

func TestRatioIsOfPairs(t *testing.T) {
	t.Parallel()
	// The machine becomes ten times slower half-way: the two medians show nothing, the pairs do.
	a, b := []float64{11, 11, 11, 110, 110, 110, 110}, []float64{10, 10, 10, 100, 100, 100, 100}
	got := Ratio(a, b)
	if math.Abs(got.Center-1.1) > 1e-9 || math.Abs(got.Lo-1.1) > 1e-9 || math.Abs(got.Hi-1.1) > 1e-9 {
		t.Errorf("Ratio = %+v, want 1.1 throughout", got)
	}
}

func TestRatioLeavesOutWhatHasNoPair(t *testing.T) {
	t.Parallel()
	if got := Ratio([]float64{4, 1, 9}, []float64{2, 0}); got.Center != 2 {
		t.Errorf("Ratio = %+v, want the one pair's: 2", got)
	}
	if got := Ratio([]float64{1}, []float64{0}); got != (Interval{}) {
		t.Errorf("Ratio without a pair = %+v, want nothing", got)
	}
}

func TestQuantile(t *testing.T) {
	sample := []int64{5, 1, 4, 2, 3}
	require.EqualValues(t, 3, Quantile(sample, 0.5))
	require.EqualValues(t, 5, Quantile(sample, 0.99))
	require.EqualValues(t, 1, Quantile(sample, 0))
	require.Zero(t, Quantile(nil, 0.5))
	require.Equal(t, []int64{5, 1, 4, 2, 3}, sample, "the sample is left as it was")
}
