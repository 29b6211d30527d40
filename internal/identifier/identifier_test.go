package identifier_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/identifier"
)

// A quoted name is spelled in a way that means itself: quoting it again changes nothing, so no part
// of it can end a quotation early.
func FuzzQuote(f *testing.F) {
	for _, name := range []string{
		"a", "a.b", `"a"`, `"a.b"."c""d"`, "`x`.y", `a"b`, "", ".", "a..b", "Größe",
		"with space", "\x00", "\xff", `"`, `""`, `"""`,
	} {
		f.Add(name, true)
		f.Add(name, false)
	}
	f.Fuzz(func(t *testing.T, name string, double bool) {
		quote := '`'
		if double {
			quote = '"'
		}
		quoted, err := identifier.Quote(name, quote, 2)
		if err != nil {
			require.Empty(t, quoted)
			require.ErrorContains(t, err, "invalid name")
			return
		}
		require.NotContains(t, quoted, "\x00")
		again, err := identifier.Quote(quoted, quote, 2)
		require.NoError(t, err)
		require.Equal(t, quoted, again)
	})
}
