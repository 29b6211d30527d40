package mysql

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
)

// A literal is read back as the text it was made of, and holds nothing that a server could read as
// its end.
func FuzzLiteral(f *testing.F) {
	for _, text := range []string{"", "42", "it's", `a\`, "日本", "\x00", "\xff", "-- ", "*/", "sku:42"} {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, binary bool) {
		sql, err := literal(dialects.Value{Text: text, Binary: binary})
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

// The nested locks of this library are among the work's statements, and do not spoil its
// connection.
func TestOwnStatementsLeaveSettings(t *testing.T) {
	request := dialects.Request{
		Table: "t", Column: "slot", Values: []dialects.Value{{Text: "1"}}, Slots: 4, Ours: true,
		Keys: []string{"use;temporary"},
	}
	own, err := lockSQL(request, "", time.Second, commentOf(labelOf(request), ""), "", true)
	require.NoError(t, err)
	require.True(t, leavesSettings(own), own)
	for _, other := range []string{
		"SET autocommit = 1", "USE other", "/* x */ SELECT 1", "SELECT 1; SET autocommit = 1", "CALL f()",
	} {
		require.False(t, leavesSettings(other), other)
	}
}
