package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// The names of the fence are the lock table's with something behind, inside its quotes, and no
// longer than the server reads.
func FuzzFenceOf(f *testing.F) {
	for _, name := range []string{
		"txlock_slots", "a.b", `"a""b"`, `"a.""b"`, `x"`, "it's",
		"a123456789012345678901234567890123456789012345678901234567",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		_, err := sqltext.QuoteTable(name)
		names, failed := fenceOf(name)
		if err != nil {
			require.Error(t, failed)
			return
		}
		if failed != nil {
			require.ErrorContains(t, failed, "too long")
			return
		}
		require.NotEqual(t, names.sequence, names.runs)
		for _, quoted := range []string{names.sequence, names.runs} {
			again, err := sqltext.QuoteTable(quoted)
			require.NoError(t, err)
			require.Equal(t, quoted, again, "it is read back as what it is")
		}
	})
}
