package results

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuantile(t *testing.T) {
	sample := []int64{5, 1, 4, 2, 3}
	require.EqualValues(t, 3, Quantile(sample, 0.5))
	require.EqualValues(t, 5, Quantile(sample, 0.99))
	require.EqualValues(t, 1, Quantile(sample, 0))
	require.Zero(t, Quantile(nil, 0.5))
	require.Equal(t, []int64{5, 1, 4, 2, 3}, sample, "the sample is left as it was")
}
