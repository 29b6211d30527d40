package sqltext

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
