package results

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModesAreTheTwoKindsOfRounds(t *testing.T) {
	t.Parallel()
	fast, slow := Modes([]float64{120, 47, 51, 131, 49, 46, 125, 52, 118, 48})
	require.Equal(t, []float64{46, 47, 48, 49, 51, 52}, fast)
	require.Equal(t, []float64{118, 120, 125, 131}, slow)
}

func TestRoundsOfOneKindHaveNoModes(t *testing.T) {
	t.Parallel()
	for name, rounds := range map[string][]float64{
		"alike":      {100, 104, 98, 101, 110, 95, 103, 99, 107, 102},
		"an outlier": {100, 104, 98, 101, 110, 95, 103, 99, 107, 400},
		"disturbed":  {100, 104, 98, 101, 110, 900, 1030, 990, 1070, 800},
		"few":        {50, 100}, "none": nil,
	} {
		fast, slow := Modes(rounds)
		require.Empty(t, fast, name)
		require.Empty(t, slow, name)
	}
}

func TestRatioOfMediansHasAnInterval(t *testing.T) {
	t.Parallel()
	a, b := []float64{10, 11, 12, 13, 14, 11, 12, 13}, []float64{9, 10, 11, 10, 9, 11, 10}
	got := RatioOfMedians(a, b)
	require.InDelta(t, 1.2, got.Center, 1e-9)
	require.Less(t, got.Lo, got.Center)
	require.Greater(t, got.Hi, got.Center)
	require.Greater(t, got.Lo, 1.0)
	require.Less(t, got.Hi, 1.5)
	require.Equal(t, got, RatioOfMedians(a, b), "the same at each call")
	require.Zero(t, RatioOfMedians(nil, b))
	require.Zero(t, RatioOfMedians(a, []float64{0}))
}
