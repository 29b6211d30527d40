package txlock

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Golden numbers: a changed hash would let two versions of a program, in a rolling deployment, hold
// one key at once.
func TestSlotOfKeyNeverChanges(t *testing.T) {
	for key, slots := range map[string]map[int]int{
		"sku:42": {65536: 2575, 1024: 527, 100: 15, 1: 0},
		"a":      {65536: 48707, 1024: 579, 100: 7, 1: 0},
		// the check value of CRC-32/ISO-HDLC
		"123456789":  {65536: 0xCBF43926 % 65536, 1024: 0xCBF43926 % 1024, 100: 0xCBF43926 % 100, 1: 0},
		"日本語":        {65536: 21221, 1024: 741, 100: 5, 1: 0},
		"nul\x00nul": {65536: 43026, 1024: 18, 100: 42, 1: 0},
	} {
		for n, want := range slots {
			target, err := slotsOf([]string{key})
			require.NoError(t, err)
			require.Equal(t, strconv.Itoa(want), slotValues(target.sums, n)[0].Text, "key %q of %d slots", key, n)
		}
	}
}

func TestSlotsAreSortedAndFolded(t *testing.T) {
	keys := make([]string, 500)
	for i := range keys {
		keys[i] = strconv.Itoa(i % 400)
	}
	target, err := slotsOf(keys)
	require.NoError(t, err)
	values := slotValues(target.sums, 16)
	require.Len(t, values, 16)
	for i, value := range values {
		require.Equal(t, strconv.Itoa(i), value.Text)
	}
}
