package label_test

import (
	"fmt"
	"math"
	"os"
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
		behind := cut & math.MaxInt32
		for _, request := range []dialects.Request{
			{Slots: 1, Keys: []string{first, second}},
			{Slots: 1, Keys: []string{first, second}, Shared: true},
			{Table: "shop.inventory", Column: `"a.b"`, Values: []dialects.Value{{Text: first}, {Text: second}}},
			{
				Table: "shop.inventory", Column: `"a.b"`, Values: []dialects.Value{{Text: first}, {Text: second}},
				Shared: true,
			},
		} {
			shown := label.Of(request)
			require.Equal(t, request.Shared, shown[0] == 's')
			require.NotContains(t, shown, "*/")
			require.NotContains(t, shown, "'")
			require.NotContains(t, shown, `\`)
			require.LessOrEqual(t, len(shown), 256)
			before, process, brackets := label.Read(
				"an app" + label.Begin(behind) + shown + "+12ms s[more]@1.5")
			require.Equal(t, "an app", before)
			require.Equal(t, os.Getpid(), process)
			require.Len(t, brackets, 2)
			require.Equal(t, behind, brackets[0].Behind)
			require.Zero(t, brackets[1].Behind)
			require.Equal(t, request.Table, brackets[0].Table)
			require.Equal(t, request.Column, brackets[0].Column)
			require.Equal(t, 12*time.Millisecond, brackets[0].After)
			require.Equal(t, []string{"more"}, brackets[1].Items)
			require.True(t, brackets[1].At.Equal(time.UnixMilli(1500)), brackets[1].At)
			begins(t, brackets[0], first, second)
			if !brackets[0].Cut {
				require.Equal(t, []string{first, second}, brackets[0].Items)
			}

			name := len(label.Process) + len(" s(shop.inventory.%22a%2Eb%22 ") // which is not cut
			text := label.Process + " " + shown
			_, _, brackets = label.Read(text[:min(max(cut, name), len(text))])
			require.Len(t, brackets, 1)
			begins(t, brackets[0], first, second)
		}
	})
}

// begins shows that the bracket's items are the keys, as far as they go.
func begins(t *testing.T, bracket dialects.Shown, keys ...string) {
	t.Helper()
	require.LessOrEqual(t, len(bracket.Items), len(keys))
	for i, item := range bracket.Items {
		if bracket.Cut && i == len(bracket.Items)-1 {
			require.True(t, strings.HasPrefix(keys[i], item), fmt.Sprintf("%q, %q", keys[i], item))
		} else {
			require.Equal(t, keys[i], item)
		}
	}
}

// A time that the server has cut is none.
func TestReadCutLabel(t *testing.T) {
	for text, granted := range map[string]bool{
		"#1 [a]+1000000ms": true, "#1 [a]+1000000m": false,
		"#1 [a]+1000000": false, "#1 [a]+": false, "#1 [a]": false,
	} {
		_, _, brackets := label.Read(text)
		require.Len(t, brackets, 1)
		require.Equal(t, granted, brackets[0].Granted, text)
	}
}

// A label that outlives its transaction counts from 1970, as far as there is room.
func TestSince(t *testing.T) {
	for text, since := range map[string]string{
		"app#1 [a]":                      "app#1 [a]@1795361282.4",
		"#1+37 [a b]+1600ms":             "#1+37 [a b]@1795361284.0",
		"#1 [a]@1795361200.1 s[b]+5ms":   "#1 [a]@1795361200.1 s[b]@1795361282.4",
		"#1 [" + strings.Repeat("k", 50): "#1 [" + strings.Repeat("k", 50), // there is no room
		"psql":                           "psql",
		"a#b":                            "a#b",
	} {
		require.Equal(t, since, label.Since(text, 1795361282.4))
		require.Equal(t, since, label.Since(since, 1795369999), "it stays")
	}
}

// A character is there whole, or not at all.
func TestReadCutCharacter(t *testing.T) {
	shown := label.Process + " " + label.Of(dialects.Request{Slots: 1, Keys: []string{"夜é🎉"}})
	read := map[string]bool{}
	for end := len(label.Process) + 3; end < len(shown); end++ {
		_, _, brackets := label.Read(shown[:end])
		require.Len(t, brackets, 1)
		read[brackets[0].Items[0]] = true
	}
	require.Equal(t, map[string]bool{"": true, "夜": true, "夜é": true, "夜é🎉": true}, read)
}

// Whatever others have for a name of their application is no label, or reads as one without harm.
func FuzzReadLabel(f *testing.F) {
	for _, text := range []string{
		"", "#", "#1", "#1 ", "#1 [", "#1 []", "#1 ()", "#1 (a", "#1 (a.b", "#1 [a]+",
		"#1 [a]+x [b", "psql", "a#b", "#1 ]", "#-1 [a]",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		before, _, brackets := label.Read(text)
		require.True(t, strings.HasPrefix(text, before))
		for _, bracket := range brackets {
			require.NotEmpty(t, append(bracket.Items, bracket.Table+"."), "%q", text)
		}
	})
}

// Values that are hidden are in no label, and the bracket says what else there is to say.
func TestHiddenValues(t *testing.T) {
	hidden := dialects.Request{Table: "inventory", Column: "sku", Values: []dialects.Value{{Text: "oil"}}, Hidden: true}
	shown := label.Begin(3) + label.Of(hidden)
	require.NotContains(t, shown, "oil")
	_, process, brackets := label.Read(shown)
	require.Equal(t, os.Getpid(), process)
	require.Equal(t, []dialects.Shown{{Table: "inventory", Column: "sku", Items: []string{}, Behind: 3}}, brackets)
}
