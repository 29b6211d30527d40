package mysql

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/internal/test/must"
)

// What the locking statement answers is a token, or an error, and never a wrong number.
func FuzzTokenOf(f *testing.F) {
	for _, row := range []string{
		"7 102176827140734977 1 102176827140734976", "", "7", "7 1 1 1", "7 x 1 1", "7 -5 1 1",
		"7 18446744073709551615 1 0", "0 2 4194304 1",
	} {
		f.Add(row)
	}
	f.Fuzz(func(t *testing.T, row string) {
		token, err := tokenOf(row)
		if err != nil {
			require.Zero(t, token)
			return
		}
		require.Positive(t, token)
		epoch := must.Get(strconv.ParseUint(strings.Fields(row)[2], 10, 64))(t)
		require.Equal(t, epoch, uint64(token)>>40, "a run has a range of its own")
	})
}

// The names of the fence are the lock table's with something behind, inside its quotes.
func FuzzFenceOf(f *testing.F) {
	for _, name := range []string{"txlock_slots", "a.b", "`a``b`", "`a.``b`", "x`"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		quoted, err := server.QuoteTable(name)
		if err != nil {
			return
		}
		names := fenceOf(name)
		require.Equal(t, strings.TrimSuffix(quoted, "`")+"_runs`", names.runs)
		require.Equal(t, names.runs, must.Get(server.QuoteTable(names.runs))(t), "it is read back as what it is")
	})
}
