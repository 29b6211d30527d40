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

// Functions, types and views are called by their schema; nothing else is.
func TestQualified(t *testing.T) {
	for text, want := range map[string]string{
		"select left(name, 2)::text[] from pg_locks l": "select pg_catalog.left(name, 2)::pg_catalog.text[] " +
			"from pg_catalog.pg_locks l",
		"select COUNT(*)::int, coalesce(a.b, '0')::bigint": "select " +
			"pg_catalog.COUNT(*)::int, coalesce(a.b, '0')::bigint",
		`select "left(" from "pg_mine" where 'f(''x'')' = any($1)`: `select "left(" from "pg_mine" ` +
			`where 'f(''x'')' = any($1)`,
		"select pg_catalog.now(), x in (1) from t (a)": "select pg_catalog.now(), x in (1) from t (a)",
		"savepoint txlock_wait":                        "savepoint txlock_wait",
	} {
		require.Equal(t, want, identifier.Qualified(text))
		require.Equal(t, want, identifier.Qualified(want))
	}
}

// Every spelling of a value that serves does.
func TestNeeded(t *testing.T) {
	for setting, values := range map[string][]string{
		"client_encoding":             {"UTF8", "utf8", "utf-8", "Utf_8", "UNICODE", ""},
		"standard_conforming_strings": {"on", "ON", "true", "1", "yes"},
		"search_path":                 {"pg_catalog", "pg_catalog,public", "pg_temp_3,pg_catalog,of locks"},
	} {
		for _, value := range values {
			require.Empty(t, identifier.Needed(setting, value), value)
		}
	}
	for setting, values := range map[string][]string{
		"client_encoding":             {"LATIN1", "SQL_ASCII", "UTF16", "MULE_INTERNAL"},
		"standard_conforming_strings": {"off", "false", "0", "no"},
		"search_path":                 {"public,pg_catalog", "pg_catalogue", "pg_temp_3", "of pg_catalog"},
	} {
		for _, value := range values {
			require.NotEmpty(t, identifier.Needed(setting, value), value)
		}
	}
}
