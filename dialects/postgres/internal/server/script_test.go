package server

import (
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
)

func with(sql string, args ...any) Statement { return Statement{SQL: sql, Args: args} }

func TestText(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]Script{
		"begin; select 'a'":              {{SQL: "begin"}, with("select $1", "a")},
		"select 'a''b', 'c'":             {with("select $1, $2", "a'b", "c")},
		`select  E'a\\''b'::text`:        {with("select $1::text", `a\'b`)},
		`select '$1', "$1", 'it''s $1'`:  {with(`select '$1', "$1", 'it''s $1'`, "a")},
		`select '""', 'a', "x""y$1"`:     {with(`select '""', $1, "x""y$1"`, "a")},
		"select '$2', 'b'":               {with("select $1, $2", "$2", "b")},
		"select '1', '10'":               {with("select $1, $10", "1", "", "", "", "", "", "", "", "", "10")},
		"select 'Zoë; drop table slots'": {with("select $1", "Zoë; drop table slots")},
	} {
		text, err := s.Text()
		require.NoError(t, err)
		require.Equal(t, want, text)
	}
	_, err := Script{with("select $1", "a\x00b")}.Text()
	require.ErrorContains(t, err, "NUL")
	for _, text := range []string{"select $2", "select $0"} {
		_, err = Script{with(text, "a")}.Text()
		require.ErrorContains(t, err, text[len("select "):])
	}
}

// What ArrayOf writes is what pgx, which reads arrays as the server does, reads back.
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
		err := types.Scan(pgtype.TextArrayOID, pgtype.TextFormatCode, []byte(ArrayOf([]string{first, second})), &read)
		require.NoError(t, err)
		require.Equal(t, []string{first, second}, read)
	})
}

func TestLiteral(t *testing.T) {
	require.Equal(t, ` E'shop\\xe9#1 [it''s]'`, Literal(`shop\xe9#1 [it's]`))
}
