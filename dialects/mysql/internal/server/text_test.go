package server_test

import (
	"encoding/hex"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// A literal is read back as the text it was made of, and holds nothing that a server could read as
// its end.
func FuzzLiteral(f *testing.F) {
	for _, text := range []string{"", "42", "it's", `a\`, "日本", "\x00", "\xff", "-- ", "*/", "sku:42"} {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, binary bool) {
		sql, err := server.Literal(dialects.Value{Text: text, Binary: binary})
		if err != nil {
			require.False(t, utf8.ValidString(text))
			return
		}
		opening := strings.IndexByte(sql, '\'')
		require.Contains(t, []string{"", "x", "_utf8mb4 x"}, sql[:opening])
		inner := strings.TrimSuffix(sql[opening+1:], "'")
		require.NotContains(t, inner, "'")
		require.NotContains(t, inner, `\`)
		if opening > 0 {
			bytes, err := hex.DecodeString(inner)
			require.NoError(t, err)
			inner = string(bytes)
		}
		require.Equal(t, text, inner)
	})
}
