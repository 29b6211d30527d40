package postgres

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
)

// A driver of nothing is an error from the first call on, and no panic.
func TestNilDriver(t *testing.T) {
	for _, none := range []*Driver{nil, {}, New(nil)} {
		require.ErrorContains(t, txlock.New(none).Ping(t.Context()), "nil driver")
	}
	for _, none := range []*SQLDriver{nil, {}, NewSQL(nil)} {
		require.ErrorContains(t, txlock.New(none).Ping(t.Context()), "nil driver")
	}
}

// Every session takes queue locks in one order, whatever the order of the rows, one for each row.
func TestQueueLocks(t *testing.T) {
	request := dialects.Request{Table: "t", Column: "id"}
	for i := range 256 {
		request.Values = append(request.Values, dialects.Value{Text: strconv.Itoa(i)})
	}
	numbers := queueLocks(request)
	require.Len(t, numbers, 256)
	require.True(t, slices.IsSorted(numbers))
	other := request
	other.Table = "u"
	require.NotEqual(t, numbers, queueLocks(other))
	other.Ours = true
	slots := queueLocks(other)
	require.Equal(t, int64(0), slots[0], "our own rows have their numbers")
	require.Equal(t, int64(255), slots[255])
}
