package batch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSize(t *testing.T) {
	var s Size
	require.Equal(t, 100, s.Next())
	for _, c := range []struct {
		took time.Duration
		next int
	}{
		{0, 200},
		{time.Millisecond, 400},
		{12 * time.Millisecond, 500},
		{5 * time.Millisecond, 1000},
		{time.Millisecond, 1000},
		{30 * time.Millisecond, 500},
		{time.Hour, 20},
		{10 * time.Millisecond, 30},
	} {
		s.Took(c.took)
		require.Equal(t, c.next, s.Next(), c.took)
	}
}
