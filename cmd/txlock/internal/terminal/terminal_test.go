package terminal_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/cmd/txlock/internal/terminal"
)

// Text from others cannot command the terminal.
func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                   "plain",
		" two\n\twords ":          "two words",
		"a\x1b[2Jb":               "a?[2Jb",
		"bell\a and \u009b2J":     "bell? and ?2J",
		"\xff\xfe":                "??",
		"right\u202eleft \u200bx": "right?left ?x",
		"ünï 鍵":                   "ünï 鍵",
	} {
		require.Equal(t, want, terminal.Clean(text))
	}
}

func TestCut(t *testing.T) {
	require.Equal(t, "abc", terminal.Cut("abc", 3))
	require.Equal(t, "ab…", terminal.Cut("abcd", 3))
	require.Equal(t, "ü…", terminal.Cut("üüü", 2))
	require.Equal(t, "", terminal.Cut("abc", 0))
	require.Equal(t, "鍵…", terminal.Cut("鍵鍵鍵", 4), "half a character is none")
	require.Equal(t, "鍵鍵鍵", terminal.Cut("鍵鍵鍵", 6))
	require.Equal(t, "…", terminal.Cut("鍵", 1))
	require.Equal(t, "e\u0301…", terminal.Cut("e\u0301tude", 2), "an accent stays with its letter")
}

// Some characters take two columns, some none.
func TestColumns(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "plain": 5, "ünï": 3, "e\u0301": 1,
		"鍵:42": 5, "한국어": 6, "\u1112\u1161\u11ab": 2, "ＡＢ": 4, "ｱ": 1,
		"🔒": 2, "❤\ufe0f": 2, "…": 1,
	} {
		require.Equal(t, want, terminal.Columns(text), text)
		require.Equal(t, 12, terminal.Columns(terminal.Fill(text, 12)), text)
		for most := range 12 {
			require.LessOrEqual(t, terminal.Columns(terminal.Cut(text, most)), most, text)
		}
	}
	require.Equal(t, "鍵", terminal.Fill("鍵", 1))
}

func TestWrap(t *testing.T) {
	text := "some words that are wrapped, and averyveryverylongonethatdoesnotfitintotheline at all"
	require.Equal(t, []string{text}, terminal.Wrap(text, 0, 5), "no terminal")
	require.Equal(t, []string{text}, terminal.Wrap(text, 24, 5), "too narrow")
	lines := terminal.Wrap(text, 30, 5)
	require.Equal(t, text, strings.Join(lines, " "))
	require.Greater(t, len(lines), 3)
	for _, line := range lines {
		require.True(t, terminal.Columns(line) <= 25 || !strings.Contains(line, " "), line)
	}
	require.Equal(t, []string{""}, terminal.Wrap("", 80, 0))
	require.Equal(t, []string{"鍵鍵鍵鍵鍵 鍵鍵鍵鍵", "鍵鍵鍵鍵鍵"},
		terminal.Wrap("鍵鍵鍵鍵鍵 鍵鍵鍵鍵 鍵鍵鍵鍵鍵", 22, 0))
}

func TestStyle(t *testing.T) {
	require.Equal(t, "\x1b[1mx\x1b[0m", terminal.Style(true).In(terminal.Bold, "x"))
	require.Equal(t, "x", terminal.Style(false).In(terminal.Bold, "x"))
	require.Empty(t, terminal.Style(true).In(terminal.Bold, ""))
}
