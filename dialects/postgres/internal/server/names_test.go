package server

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A name without quotes is the one that the server makes of it: A to Z alone become small.
func TestFoldedName(t *testing.T) {
	for name, want := range map[string]string{
		"Straße.GRÖSSE":    `"straße"."grÖsse"`,
		"ÀB":               `"Àb"`,
		`"GRÖSSE".ΣΊΣΥΦΟΣ`: `"GRÖSSE"."ΣΊΣΥΦΟΣ"`,
		"with space.Ä":     `"with space"."Ä"`,
	} {
		quoted, err := QuoteTable(name)
		require.NoError(t, err)
		require.Equal(t, want, quoted)
	}
}

// The names of what stands beside a lock table are its own with something behind, inside its
// quotes, and no longer than the server reads.
func FuzzBeside(f *testing.F) {
	for _, name := range []string{
		"txlock_slots", "a.b", `"a""b"`, `"a.""b"`, `x"`, "it's",
		"a123456789012345678901234567890123456789012345678901234567",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		quoted, err := QuoteTable(name)
		beside, failed := Beside(name)
		if err != nil {
			require.Error(t, failed)
			return
		}
		if failed != nil {
			require.ErrorContains(t, failed, "too long")
			return
		}
		require.Equal(t, quoted, beside(""))
		again, err := QuoteTable(beside(Tokens))
		require.NoError(t, err)
		require.Equal(t, beside(Tokens), again, "it is read back as what it is")
	})
}
