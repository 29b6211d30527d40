package batch

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSize(t *testing.T) {
	size := first
	require.Equal(t, 100, size)
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
		size = after(size, c.took)
		require.Equal(t, c.next, size, c.took)
	}
}

// Batches follow one another until one is not full, or fails.
func TestRun(t *testing.T) {
	from, left := []string{}, 250
	delete := func(at string, size int) (string, int, error) {
		from = append(from, at)
		n := min(size, left)
		left -= n
		return strconv.Itoa(left), n, nil
	}
	deleted, err := Run("x", delete)
	require.NoError(t, err)
	require.Equal(t, int64(250), deleted)
	require.Equal(t, []string{"x", "150"}, from)

	left = 100
	errLost := errors.New("lost")
	deleted, err = Run("x", func(at string, size int) (string, int, error) {
		if left == 0 {
			return at, 0, errLost
		}
		return delete(at, size)
	})
	require.ErrorIs(t, err, errLost)
	require.Equal(t, int64(100), deleted)
}
