package postgres

import (
	"slices"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
)

// What arrayOf writes is what pgx, which reads arrays as the server does, reads back.
func FuzzArrayOf(f *testing.F) {
	for _, text := range []string{"", "42", `"`, `\`, `{a,b}`, "NULL", "it's", "日本", " ", "a,b"} {
		f.Add(text, "second")
	}
	types := pgtype.NewMap()
	f.Fuzz(func(t *testing.T, first, second string) {
		if !utf8.ValidString(first) || !utf8.ValidString(second) {
			return // refused before
		}
		var read []string
		err := types.Scan(pgtype.TextArrayOID, pgtype.TextFormatCode, []byte(arrayOf([]string{first, second})), &read)
		require.NoError(t, err)
		require.Equal(t, []string{first, second}, read)
	})
}

// Every session takes turnstiles in one order, whatever the order of the rows, and not too many of
// them.
func TestTurnstiles(t *testing.T) {
	request := dialects.Request{Table: "t", Column: "id"}
	for i := range 1000 {
		request.Values = append(request.Values, dialects.Value{Text: strconv.Itoa(i)})
	}
	numbers := turnstilesOf(request)
	require.Len(t, numbers, maxTurnstiles)
	require.True(t, slices.IsSorted(numbers))
	other := request
	other.Table = "u"
	require.NotEqual(t, numbers, turnstilesOf(other))
	other.Ours = true
	slots := turnstilesOf(other)
	require.Equal(t, int64(0), slots[0], "our own rows have their numbers")
	require.Equal(t, int64(maxTurnstiles-1), slots[maxTurnstiles-1])
}

func TestEscaped(t *testing.T) {
	require.Equal(t, `E'shop\\xe9#1 [it''s]'`, escaped(`shop\xe9#1 [it's]`))
}

// A name without quotes is the one that the server makes of it: A to Z alone become small.
func TestFoldedName(t *testing.T) {
	for name, want := range map[string]string{
		"Straße.GRÖSSE":    `"straße"."grÖsse"`,
		"ÀB":               `"Àb"`,
		`"GRÖSSE".ΣΊΣΥΦΟΣ`: `"GRÖSSE"."ΣΊΣΥΦΟΣ"`,
		"with space.Ä":     `"with space"."Ä"`,
	} {
		quoted, err := quoteTable(name)
		require.NoError(t, err)
		require.Equal(t, want, quoted)
	}
}
