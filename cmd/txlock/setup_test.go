//go:build unix

package main_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/servers"
)

// secret is a password with characters that a URL must escape.
const secret = "hush:Wört/@p%1"

// sourceName is a URL in the form of go-sql-driver/mysql, where the server is one of MySQL's.
func (f *fixture) sourceName(t *testing.T, address string) string {
	t.Helper()
	if f.postgres {
		return address
	}
	u, err := url.Parse(address)
	require.NoError(t, err)
	password, _ := u.User.Password()
	return u.User.Username() + ":" + password + "@tcp(" + u.Host + ")" + u.Path
}

// withPassword is the fixture's URL for a user with a password.
func (f *fixture) withPassword(t *testing.T) string {
	t.Helper()
	if f.postgres {
		f.createUser(t, "SUPERUSER PASSWORD '"+secret+"'")
	} else {
		f.createUser(t, "IDENTIFIED BY '"+secret+"'", "ALL ON *.*")
	}
	return f.urlWith(t, url.UserPassword(f.database, secret))
}

func TestPassword(t *testing.T) { each(t, password) }

// A password works from the URL and from the environment. It is in no output, whatever fails.
func password(t *testing.T, e *engine) {
	f := newFixture(t, e)
	address := f.withPassword(t)
	bare, variable := f.urlWith(t, url.User(f.database)), "MYSQL_PWD="
	if e.postgres {
		variable = "PGPASSWORD="
	}
	u, err := url.Parse(address)
	require.NoError(t, err)
	closed := *u
	closed.Host = "127.0.0.1:1"
	missing := *u
	missing.Path = "/no_such_database"
	wrong := *u
	wrong.User = url.UserPassword("nobody_here", secret)
	for _, c := range []struct {
		dsn  string
		more []string
		code int
	}{
		{address, nil, 0},
		{bare, []string{variable + secret}, 0},
		{closed.String(), nil, 69},
		{missing.String(), nil, 78},
		{wrong.String(), nil, 77},
		{strings.Replace(address, "%2F", "%2", 1), nil, 64},
		{strings.Replace(address, "%2F", "/", 1), nil, 64},
		{strings.Replace(address, "%2F", "/@", 1), nil, 64},
		{strings.Replace(address, u.Host, u.Host+"x", 1), nil, 64},
		{u.Scheme + ":/" + address[len(u.Scheme)+3:], nil, 64},
		{address + "?nonsense=" + url.QueryEscape("\x00"), nil, -1},
	} {
		for _, run := range []result{
			run(t, append(c.more, "TXLOCK_DSN="+c.dsn), "install", "--slots", "4"),
			run(t, c.more, "install", "--slots", "4", "--dsn", c.dsn),
			run(t, append(c.more, "TXLOCK_DSN="+c.dsn), "doctor"),
		} {
			output := run.stdout + run.stderr
			require.NotContains(t, output, "hush")
			require.NotContains(t, output, "p%1")
			require.NotContains(t, output, "p%251")
			if c.code >= 0 {
				require.Equal(t, c.code, run.code, "%s: %s", c.dsn, output)
			}
		}
	}
	if e.postgres { // a question mark need not be escaped: psql agrees
		f.do(t, "ALTER ROLE "+f.database+" PASSWORD 'hush?more'")
		r := run(t, nil, "status", "--dsn", u.Scheme+"://"+f.database+":hush?more@"+u.Host+u.Path)
		require.Zero(t, r.code, r.stderr)
	}
	// The password is typed in the wrong place.
	for _, arguments := range [][]string{
		{address},
		{"doctor", address},
		{"run", address},
		{"install", "--table", address},
	} {
		r := run(t, []string{"TXLOCK_DSN=" + bare, variable + secret}, arguments...)
		require.NotZero(t, r.code)
		require.NotContains(t, r.stdout+r.stderr, "hush")
	}
}

// dropFence drops what tokens are drawn from.
func (f *fixture) dropFence(t *testing.T) {
	t.Helper()
	if !f.postgres {
		f.do(t, "DROP TABLE "+f.database+".txlock_slots_runs, "+f.database+".txlock_slots_epochs")
		return
	}
	db := database.Open(t, "pgx", f.url)
	database.Exec(t, db, "DROP TABLE txlock_slots_runs, txlock_slots_epochs")
}

func TestNotInstalled(t *testing.T) { each(t, notInstalled) }

// The error names what is missing, and says what to do.
func notInstalled(t *testing.T, e *engine) {
	f := newFixture(t, e)
	for _, arguments := range [][]string{
		{"run", "k", "--", "true"},
		{"run", "--no-token", "k", "--", "true"},
		{"status"},
		{"break", "--yes", "k"},
	} {
		r := f.run(t, arguments...)
		require.Equal(t, 78, r.code, "%v: %s", arguments, r.stderr)
		require.Contains(t, r.stderr, `run "txlock install" once`)
		require.Equal(t, 1, strings.Count(strings.ToLower(r.stderr), "install\""), r.stderr)
		require.NotContains(t, strings.ToLower(r.stderr), "run install", "it is for programs")
	}
	require.Zero(t, f.run(t, "install", "--slots", "4").code)
	f.dropFence(t) // as before tokens came
	r := f.run(t, "run", "k", "--", "true")
	require.Equal(t, 78, r.code)
	require.Contains(t, r.stderr, "--no-token")
	require.Equal(t, "1", f.run(t, "run", "--no-token", "k", "--", "sh", "-c", "echo ${TXLOCK_TOKEN-1}").stdout)
	// A second install adds what was missing. The number of slots stays.
	require.Zero(t, f.run(t, "install").code)
	require.Zero(t, f.run(t, "run", "k", "--", "true").code)
	r = f.run(t, "install", "--slots", "5")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "4")
	// The advice repeats the name of another table.
	r = f.run(t, "run", "--table", "other_locks", "k", "--", "true")
	require.Equal(t, 78, r.code)
	require.Contains(t, r.stderr, "--table other_locks")
	require.Zero(t, f.run(t, "install", "--table", "other_locks", "--slots", "2").code)
	require.Zero(t, f.run(t, "run", "--table", "other_locks", "k", "--", "true").code)
	// install creates neither a database nor a schema.
	nowhere := []string{"TXLOCK_DSN=" + strings.Replace(f.url, "/"+f.database, "/no_such_database", 1)}
	for _, r := range []result{
		run(t, nowhere, "run", "k", "--", "true"), run(t, nowhere, "install"), run(t, nowhere, "status"),
		f.run(t, "install", "--table", "no_such_schema.locks"),
	} {
		require.Equal(t, 78, r.code, r.stderr)
		require.Contains(t, r.stderr, "no_such_")
		require.True(t, strings.HasSuffix(r.stderr, "; create it, or correct its name\n"), r.stderr)
	}
	if e.Kind == servers.MySQL { // the others report a missing table
		r = f.run(t, "run", "--table", "no_such_schema.locks", "k", "--", "true")
		require.Equal(t, 78, r.code, r.stderr)
		require.Contains(t, r.stderr, "create it, or correct its name")
	}
}

func TestUnprivileged(t *testing.T) { each(t, unprivileged) }

// A user who may not lock is sent to the doctor, which names the missing grant. A user who may not
// log in has mistyped something.
func unprivileged(t *testing.T, e *engine) {
	f := installed(t, e)
	if e.postgres {
		f.createUser(t, "")
	} else {
		f.createUser(t, "", "INSERT ON "+f.database+".*")
	}
	r := run(t, []string{"TXLOCK_DSN=" + f.urlWith(t, url.User(f.database))}, "run", "--no-token", "k", "--", "true")
	require.Equal(t, 77, r.code, r.stderr)
	require.True(t, strings.HasSuffix(r.stderr, `; "txlock doctor" says which grant is missing`+"\n"), r.stderr)
	r = run(t, []string{"TXLOCK_DSN=" + f.urlWith(t, url.User("nobody_here"))}, "run", "--no-token", "k", "--", "true")
	require.Equal(t, 77, r.code, r.stderr)
	require.True(t, strings.HasSuffix(r.stderr, "; check user, password and grants\n"), r.stderr)
}
