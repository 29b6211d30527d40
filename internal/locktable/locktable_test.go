package locktable

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
)

// Each state of a lock table has an error of its own, with the number that an Install helps to.
func TestSlots(t *testing.T) {
	for answer, want := range map[string]struct {
		slots int
		text  string
	}{
		"":                     {dialects.DefaultSlots, "table t is empty (run install, or the SQL of schema)"},
		"0 0 0 0 0 ":           {dialects.DefaultSlots, "table t is empty (run install, or the SQL of schema)"},
		"3 0 2 3 3 public.t a": {3, ""},
		"2 0 1 3 3 ":           {3, "table t has 2 of 3 slots (run install, or the SQL of schema)"},
		"4 0 3 3 3 ":           {0, "table t has 4 of 3 slots, from 0 to 3"},
		"3 1 3 3 3 ":           {0, "table t has 3 of 3 slots, from 1 to 3"},
		"3 0 2 2 3 ":           {0, "table t has rows that were seeded for different numbers of slots, 2 and 3"},
		"3 0 2 3 3": {
			0, "table t is missing or has another shape: it does not say its name (run install, or the SQL of schema)",
		},
	} {
		var lines []string
		if answer != "" {
			lines = []string{answer}
		}
		slots, name, err := Slots("t", lines, 0)
		require.Equal(t, want.slots, slots, answer)
		if want.text == "" {
			require.NoError(t, err)
			require.Equal(t, "public.t a", name)
			continue
		}
		require.ErrorIs(t, err, dialects.ErrNotInstalled)
		require.EqualError(t, err, "lock table not installed: "+want.text)
	}
	slots, _, err := Slots("t", []string{"3 0 2 3 3 "}, 4)
	require.ErrorContains(t, err, "with 3 slots, not 4")
	require.Zero(t, slots)
}

func TestNoFence(t *testing.T) {
	errOdd := errors.New("odd")
	err := NoFence("t", errOdd, `"ODD"`)
	require.ErrorIs(t, err, dialects.ErrNotInstalled)
	require.ErrorIs(t, err, errOdd)
	require.Equal(t, errOdd, NoFence("t", errOdd, "even"))
}

// A row that is missing is told from one that another session holds, or that came meanwhile.
func TestMissingRows(t *testing.T) {
	r := dialects.Request{Table: "inventory", Column: "sku", Values: []dialects.Value{{Text: "a"}, {Text: "b"}}}
	require.ErrorContains(t, MissingRows(r, []string{"a", "a"}), `no row where sku is "b"`)
	require.ErrorContains(t, MissingRows(r, []string{"b", "a"}), "changed or came")
	r.Slots = 2
	require.ErrorIs(t, MissingRows(r, nil), dialects.ErrNotInstalled)
	r.Try = true
	require.ErrorIs(t, MissingRows(r, []string{"a", "b"}), dialects.ErrNotAcquired)
}
