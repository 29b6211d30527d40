//go:build unix

package main_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What slot and schema print for other languages is what stands on the page, and in the file, that
// the tests of internal/test/guarantees run.
func TestStatementsOfThePage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/protocol.md")
	require.NoError(t, err)
	page := string(text)

	functions, err := os.ReadFile("functions.sql")
	require.NoError(t, err)
	r := run(t, nil, "schema", "--system", "postgres", "--with-functions")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, strings.TrimSpace(string(functions)))

	r = run(t, nil, "slot", "--system", "postgres", "sku:42")
	require.Zero(t, r.code, r.stderr)
	lines := strings.SplitN(r.stdout, "\n", 3)
	require.Equal(t, []string{"2575", "begin isolation level read committed;"}, lines[:2])
	require.Contains(t, page, lines[2])
	r = run(t, nil, "slot", "--system", "mysql", "--slots", "1024", "--table", "shop.locks", "sku:42")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "527\nset session transaction isolation level read committed;\nstart transaction;\n"+
		"select slot from `shop`.`locks` where slot = 527 and slots = 1024 for update;")
	r = run(t, nil, "slot", "--number", "größe", "sku:42")
	require.Equal(t, "43401\n2575", r.stdout)

	for typed, told := range map[string]string{
		"slot":                                   "slot takes a key",
		"slot k":                                 "or --system postgres or mysql",
		"slot --system oracle k":                 "it must be postgres or mysql",
		"slot --system mysql --slots 0 k":        "--slots 0",
		"slot --number --system postgres k a":    "",
		"schema --system mysql --with-functions": "is for PostgreSQL",
		"schema --system postgres --with-functions --table a'b": "--table",
	} {
		if r = run(t, nil, strings.Fields(typed)...); told == "" {
			require.Zero(t, r.code, r.stderr)
			continue
		}
		require.Equal(t, 64, r.code, typed)
		require.Contains(t, r.stderr, told, typed)
	}
}
