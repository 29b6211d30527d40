package locktable

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
)

func TestWithoutAdvice(t *testing.T) {
	census := func(c Census) error {
		_, err := c.Slots("t", 0)
		return err
	}
	errOdd := errors.New("odd (run Install)") // as a server may say it
	for _, test := range []struct {
		err           error
		text, without string
	}{
		{NotInstalled("t", errOdd), "table t is missing or has another shape: odd (run Install) (run Install, or the " +
			"SQL of Schema)", "table t is missing or has another shape: odd (run Install)"},
		{
			NoFence("t", errOdd, `"ODD"`),
			"table t has no fence: odd (run Install) (run Install, or the SQL of Schema)",
			"table t has no fence: odd (run Install)",
		},
		{census(Census{}), "table t is empty (run Install, or the SQL of Schema)", "table t is empty"},
		{
			census(Census{Rows: 2, MaxSlot: 1, MinSlots: 3, MaxSlots: 3}),
			"table t has 2 of 3 slots (run Install, or the SQL of Schema)", "table t has 2 of 3 slots",
		},
	} {
		require.ErrorIs(t, test.err, dialects.ErrNotInstalled)
		require.EqualError(t, test.err, "lock table not installed: "+test.text)
		above := fmt.Errorf("txlock: Lock of k: %w (tried twice)", test.err)
		require.Equal(t, "txlock: Lock of k: lock table not installed: "+test.without+" (tried twice)",
			WithoutAdvice(above))
	}
	require.ErrorIs(t, NotInstalled("t", errOdd), errOdd)
	require.Equal(t, errOdd.Error(), WithoutAdvice(errOdd))
	require.Equal(t, errOdd, NoFence("t", errOdd, "even"))
}
