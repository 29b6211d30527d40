//go:build unix

package main_test

import (
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/servers"
)

func TestStatusOfKeys(t *testing.T) { each(t, statusOfKeys) }

// A user who asks for several keys sees which of them a row is about, even if the server does not
// say so.
func statusOfKeys(t *testing.T, e *engine) {
	e.oneAtATime(t)
	f := newFixture(t, e)
	require.Zero(t, f.run(t, "install", "--slots", "2").code)
	// With two slots, "k" and "l" are in different slots by their CRC-32, and "n" is in that of
	// "l".
	holder := f.play(t, "patient", "k")
	named := `k`
	if e.Kind == servers.MariaDB { // it does not show what an idle session says of itself
		named = `slot \d of k`
	}
	require.Regexp(t, `\n`+named+` +held`, f.run(t, "status", "k", "l").stdout)
	require.Regexp(t, `\n`+named+` +held`, f.run(t, "status", "n", "l", "k").stdout)
	r := f.run(t, "status", "l", "n")
	require.Equal(t, "not held: l n", r.stdout)

	another := f.play(t, "patient", "n")
	r = f.run(t, "status", "l", "n", "k")
	require.Regexp(t, map[bool]string{
		true:  `\nslot \d of l, n +held`,
		false: `\nn, in the slot of l +held`,
	}[e.Kind == servers.MariaDB], r.stdout)
	require.Regexp(t, `\n`+named+` +held`, r.stdout)
	for _, p := range []*process{holder, another} {
		p.end(t)
	}
}

func TestHiddenKeys(t *testing.T) { each(t, hiddenKeys) }

// A key that a command hides is in no list, and found by who names it.
func hiddenKeys(t *testing.T, e *engine) {
	f := newFixture(t, e)
	require.Zero(t, f.run(t, "install", "--slots", "2").code)
	holder := f.play(t, "patient", "sesame", "--hide-keys", "--permits", "2")
	require.Contains(t, f.run(t, "status", "sesame").stdout, "permits of sesame")
	all := f.run(t, "status").stdout
	require.NotContains(t, all, "sesame")
	if e.Kind != servers.MariaDB { // it lists what somebody waits for
		require.Contains(t, all, "permits of ~")
	}
	holder.end(t)
}

// Files are proposed only where a command is expected, and no completion asks a server.
func TestCompletion(t *testing.T) {
	t.Parallel()
	proposed := func(arguments ...string) []string {
		unreachable := []string{"TXLOCK_DSN=postgres://127.0.0.1:1/nowhere"}
		r := run(t, unreachable, append([]string{"__complete"}, arguments...)...)
		require.Zero(t, r.code)
		require.NotRegexp(t, regexp.MustCompile(`(?i)txlock:|error`), r.stderr)
		return strings.Split(r.stdout, "\n")
	}
	const nothing, noFiles, files = "", ":4", ":0"
	for _, typed := range []string{"break ", "status ", "run ", "run --wait ", "run k ", "install "} {
		require.Equal(t, []string{noFiles}, proposed(strings.Split(typed, " ")...), typed)
	}
	require.Equal(t, []string{files}, proposed("run", "k", "--", nothing))
	require.Equal(t, []string{files}, proposed("run", "k", "--", "sh", nothing))
	require.Equal(t, []string{"postgres", "mysql", noFiles}, proposed("schema", "--system", nothing))
}

// If a server shows nothing without a grant, that is an error which says so, not an empty picture.
func TestStatusRefused(t *testing.T) {
	t.Parallel()
	for _, e := range engines[1:] { // PostgreSQL shows the holder to everybody
		t.Run(strings.ReplaceAll(e.Name, " ", ""), func(t *testing.T) {
			t.Parallel()
			f := installed(t, e)
			f.createUser(t, "", "SELECT, UPDATE ON "+f.database+".*")
			f.url = f.urlWith(t, url.User(f.database))
			r := f.run(t, "status")
			require.Equal(t, 77, r.code, r.stderr)
			require.Contains(t, r.stderr, "GRANT ")
			require.Empty(t, r.stdout)
		})
	}
}

// A held lock whose holder the server does not name is shown as such, and break ends nobody.
func TestUnnamedHolder(t *testing.T) {
	t.Parallel()
	e := engines[2] // MariaDB names the holder of a row only if another session waits for it
	e.oneAtATime(t)
	f := installed(t, e)
	holder := f.play(t, "patient", "k")
	f.createUser(t, "WITH MAX_USER_CONNECTIONS 1", "ALL ON "+f.database+".*", "PROCESS, CONNECTION ADMIN ON *.*")
	f.url = f.urlWith(t, url.User(f.database))
	alone := func() { // the server frees the place of an ended process a little later
		t.Helper()
		eventually.True(t, "the user's session to end", func() bool {
			var sessions int
			require.NoError(t, f.admin.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE user = ?",
				f.database).Scan(&sessions))
			return sessions == 0
		})
	}
	r := f.run(t, "status", "k")
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `\nslot \d+ of k +held +\?$`, r.stdout)
	alone()
	s := f.status(t, "k")
	require.Len(t, s.Locks, 1)
	require.NotNil(t, s.Locks[0].Holder)
	require.Equal(t, shownSession{}, *s.Locks[0].Holder)
	alone()
	require.Contains(t, f.run(t, "status", "--json", "k").stdout, `"id": null,`)
	alone()
	r = f.run(t, "break", "--yes", "k")
	require.Equal(t, 1, r.code, r.stdout)
	require.Equal(t, "txlock: k is held, but the server does not show by whom: try again, or as a user who may have "+
		"a few more connections\n", r.stderr)
	alone()
	r = f.run(t, "run", "--try", "k", "--", "echo", "never")
	require.Equal(t, 75, r.code, r.stderr)
	require.Equal(t, "txlock: k was not acquired: held by a session that the server did not name\n", r.stderr)
	holder.end(t)
}

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
