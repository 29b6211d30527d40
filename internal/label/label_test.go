package label_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// A label is read back as what it was made of, and a cut one as its beginning.
func FuzzLabel(f *testing.F) {
	for _, key := range []string{
		"sku:42", "a b", "[x]", "(y)", "50%", "+1s", "@2", "#3", "é", "\x00", "*/", "'",
		strings.Repeat("k", 300), "%41",
	} {
		f.Add(key, "other", 20)
	}
	f.Fuzz(func(t *testing.T, first, second string, cut int) {
		if first == "" || second == "" {
			return // no keys
		}
		const slots, table, column = 1 << 20, "shop.inventory", `"a.b"`
		keys, values := []string{first, second}, []dialects.Value{{Text: first}, {Text: second}}
		for _, request := range []dialects.Request{
			{Slots: 1, Label: label.Keys(keys...)},
			{Slots: 1, Label: label.Keys(keys...), Shared: true},
			{Table: table, Column: column, Values: values, Label: label.Rows(table, column, keys...)},
			{Table: table, Column: column, Values: values, Label: label.Rows(table, column, keys...), Shared: true},
		} {
			shown := request.Label
			if request.Shared {
				shown = "s" + shown
			}
			require.NotContains(t, shown, "*/")
			require.NotContains(t, shown, "'")
			require.NotContains(t, shown, `\`)
			require.LessOrEqual(t, len(shown), 256)
			text := "an app" + label.Begin + shown
			whole := strings.HasSuffix(shown, "]") || strings.HasSuffix(shown, ")")
			if whole {
				text += " s[more]@1.5"
			}
			read := label.Read(text)
			require.Equal(t, "an app", read.Before)
			require.Equal(t, os.Getpid(), read.Process)
			if whole {
				require.True(t, read.Since.Equal(time.UnixMilli(1500)), read.Since)
				more := strconv.Itoa(dialects.SlotOf("more", slots))
				require.Contains(t, []string{"more", first, second}, read.Key(more, slots, true))
			}
			for end := range len(text) + 1 {
				says(t, label.Read(text[:end]), request, keys, whole && end == len(text))
			}
		}
	})
}

// says shows that the label has the keys, or the values, of the request, and no others.
func says(t *testing.T, read label.Label, request dialects.Request, keys []string, all bool) {
	t.Helper()
	const slots = 1 << 20
	for _, key := range keys {
		if request.Table != "" {
			break
		}
		shown := read.Key(strconv.Itoa(dialects.SlotOf(key, slots)), slots, true)
		beginning, cut := strings.CutSuffix(shown, "…")
		switch {
		case all, !cut && shown != "":
			require.Equal(t, dialects.SlotOf(key, slots), dialects.SlotOf(shown, slots))
		case cut:
			require.True(t, slices.ContainsFunc(append(keys[:2:2], "more"), func(key string) bool {
				return strings.HasPrefix(strings.ToValidUTF8(key, ""), beginning)
			}), beginning)
		}
	}
	var values []string
	read.Rows(func(table, column, value string) {
		require.Equal(t, request.Table, table)
		require.Equal(t, request.Column, column)
		values = append(values, value)
	})
	for i, value := range values {
		require.Equal(t, request.Values[i].Text, value)
	}
	if all {
		require.Len(t, values, len(request.Values))
	}
}

// A label that outlives its transaction says since when, as far as there is room.
func TestSince(t *testing.T) {
	for text, since := range map[string]string{
		"app#1 [a]":                      "app#1 [a]@1795361282.4",
		"#1 [a]@1795361200.1":            "#1 [a]@1795361200.1",
		"a@b#1 [a]":                      "a@b#1 [a]@1795361282.4",
		"#1 [" + strings.Repeat("k", 50): "#1 [" + strings.Repeat("k", 50), // there is no room
		"psql":                           "psql",
	} {
		require.Equal(t, since, label.Since(text, 1795361282.4))
		require.Equal(t, since, label.Since(since, 1795369999), "it stays")
	}
}

// A character is there whole, or not at all.
func TestReadCutCharacter(t *testing.T) {
	shown := label.Begin + label.Keys("夜é🎉")
	read := map[string]bool{}
	for end := len(label.Begin) + 2; end < len(shown); end++ {
		read[label.Read(shown[:end]).Key("0", 1<<20, true)] = true
	}
	require.Equal(t, map[string]bool{"": true, "夜…": true, "夜é…": true, "夜é🎉…": true}, read)
}

// Whatever others have for a name of their application is no label, or reads as one without harm.
func FuzzReadLabel(f *testing.F) {
	for _, text := range []string{
		"", "#", "#1", "#1 ", "#1 [", "#1 []", "#1 ()", "#1 (a", "#1 (a.b", "#1 [a]+",
		"#1 [a]+x [b", "psql", "a#b", "#1 ]", "#-1 [a]", "#1 @", "#1 [@",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		read := label.Read(text)
		require.True(t, strings.HasPrefix(text, read.Before))
		read.Key("0", 1, true)
		read.Rows(func(table, _, _ string) { require.NotEmpty(t, table) })
	})
}

// Values that are hidden are in no label.
func TestHiddenValues(t *testing.T) {
	shown := label.Begin + label.Rows("inventory", "sku")
	require.NotContains(t, shown, "oil")
	read := label.Read(shown)
	require.Equal(t, os.Getpid(), read.Process)
	read.Rows(func(_, _, value string) { require.Fail(t, value) })
}

// Names are read as they were, and a long one as its beginning.
func FuzzASCII(f *testing.F) {
	for _, name := range []string{"api", "a=b#c/d e", "é%41", "\x00\xff", strings.Repeat("é", 99)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		text := label.ASCII(name)
		require.LessOrEqual(t, len(text), 191)
		for _, c := range []byte(text) {
			require.True(t, ' ' < c && c < 0x7f && c != '\'' && c != '\\', text)
		}
		read, cut := strings.CutSuffix(label.Known("", text), "…")
		require.True(t, read == name || strings.HasPrefix(name, read) && (cut || strings.HasSuffix(name, "…")), read)
	})
}
