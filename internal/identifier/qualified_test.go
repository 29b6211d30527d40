package identifier_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/identifier"
)

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
