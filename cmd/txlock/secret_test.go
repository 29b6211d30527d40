//go:build unix

package main_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
