package dsn_test

import (
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/cmd/txlock/internal/dsn"
	"github.com/txlock/txlock/internal/test/must"
)

func none(string) string { return "" }

func TestMySQL(t *testing.T) {
	for text, want := range map[string]struct {
		user, password, net, addr, database string
	}{
		"mysql://u:p@h:1/d":                               {"u", "p", "tcp", "h:1", "d"},
		"MySQL://u:p@h/d":                                 {"u", "p", "tcp", "h:3306", "d"},
		"mariadb://h":                                     {"", "", "tcp", "h:3306", ""},
		"mysql:///d":                                      {"", "", "tcp", "localhost:3306", "d"},
		"mysql://u@[::1]:7/d":                             {"u", "", "tcp", "[::1]:7", "d"},
		"mysql://u%40x:a%2Fb%3A%40%25c@h/d%2Fe":           {"u@x", "a/b:@%c", "tcp", "h:3306", "d/e"},
		"mysql://u@/d?socket=/run/my.sock":                {"u", "", "unix", "/run/my.sock", "d"},
		"mysql://u@/d?socket=%2Frun%2Fmy.sock&timeout=3s": {"u", "", "unix", "/run/my.sock", "d"},
		"u:p@tcp(h:1)/d":                                  {"u", "p", "tcp", "h:1", "d"},
		"u:p@tcp(h)/d?parseTime=true":                     {"u", "p", "tcp", "h:3306", "d"},
		"u:a/b:@c://d e@tcp([::1]:7)/":                    {"u", "a/b:@c://d e", "tcp", "[::1]:7", ""},
		"u@unix(/run/my.sock)/d%2Fe":                      {"u", "", "unix", "/run/my.sock", "d/e"},
		"tcp(h:1)/d":                                      {"", "", "tcp", "h:1", "d"},
	} {
		server := parse(t, text)
		require.Equal(t, dsn.MySQL, server.System)
		config := must.Get(mysql.ParseDSN(server.Driver))(t)
		require.Equal(t, want.user, config.User, text)
		require.Equal(t, want.password, config.Passwd, text)
		require.Equal(t, want.net, config.Net, text)
		require.Equal(t, want.addr, config.Addr, text)
		require.Equal(t, want.database, config.DBName, text)
		require.Contains(t, config.ConnectionAttributes, "program_name:txlock")
		require.Equal(t, want.addr+"/"+want.database, server.Address)
		require.Equal(t, want.database, server.Database)
	}
}

func TestMySQLParameters(t *testing.T) {
	server, err := dsn.Parse("mysql://h/d?charset=utf8mb4&time_zone=%27%2B01%3A00%27&timeout=3s"+
		"&connectionAttributes=program_name:mine", none)
	require.NoError(t, err)
	config := must.Get(mysql.ParseDSN(server.Driver))(t)
	require.Equal(t, "'+01:00'", config.Params["time_zone"])
	require.Equal(t, 3*time.Second, config.Timeout)
	require.Equal(t, 3*time.Second, server.Timeout)
	require.Equal(t, "program_name:mine", config.ConnectionAttributes)

	server = parse(t, "mysql://h/d?connectionAttributes=role:cron")
	require.Equal(t, 10*time.Second, server.Timeout)
	config = must.Get(mysql.ParseDSN(server.Driver))(t)
	require.Equal(t, "role:cron,program_name:txlock", config.ConnectionAttributes)
}

// MySQL's programs and libpq have words of their own for TLS.
func TestMySQLEncrypted(t *testing.T) {
	for parameter, want := range map[string]string{
		"ssl-mode=DISABLED": "false", "ssl-mode=PREFERRED": "preferred", "ssl-mode=REQUIRED": "skip-verify",
		"ssl-mode=VERIFY_CA": "true", "ssl-mode=verify_identity": "true", "sslmode=disable": "false",
		"sslmode=require": "skip-verify", "sslmode=verify-full": "true", "tls=skip-verify": "skip-verify",
	} {
		for _, name := range []string{"mysql://u:p@h/d", "u:p@tcp(h)/d"} {
			server, err := dsn.Parse(name+"?timeout=3s&"+parameter, none)
			require.NoError(t, err, parameter)
			config, err := mysql.ParseDSN(server.Driver)
			require.NoError(t, err, parameter)
			require.Equal(t, want, config.TLSConfig, parameter)
			require.Equal(t, 3*time.Second, config.Timeout)
		}
	}
	_, err := dsn.Parse("mysql://h/d?ssl-mode=perhaps", none)
	require.ErrorIs(t, err, dsn.ErrURL)
	require.ErrorContains(t, err, "ssl-mode must be DISABLED, PREFERRED, REQUIRED, ")
}

func TestPasswordOfEnvironment(t *testing.T) {
	environment := func(name string) string { return map[string]string{"MYSQL_PWD": "hidden thing"}[name] }
	server := must.Get(dsn.Parse("mysql://u@h/d", environment))(t)
	require.Equal(t, "hidden thing", must.Get(mysql.ParseDSN(server.Driver))(t).Passwd)
	require.Equal(t, "a xxxxx b", server.Redact("a hidden thing b"))
	server = must.Get(dsn.Parse("u@tcp(h)/d", environment))(t)
	require.Contains(t, server.Driver, "u:hidden thing@")
	server = must.Get(dsn.Parse("mysql://u:given@h/d", environment))(t)
	require.Contains(t, server.Driver, "u:given@")
	server = must.Get(dsn.Parse("mysql://u:@h/d", environment))(t) // an empty password counts as one
	require.NotContains(t, server.Driver, "hidden")
}

func TestPostgres(t *testing.T) {
	for text, timeout := range map[string]time.Duration{
		"postgres://u:p@h:1/d":                                10 * time.Second,
		"POSTGRESQL://u:p@h:1/d?sslmode=disable":              10 * time.Second,
		"postgres://u:p@h:1/d?connect_timeout=3":              3 * time.Second,
		"postgres://u:p@h:1,i:2/d?connect_timeout=3":          6 * time.Second,
		"postgres://u:p@h:1,i:2/d?connect_timeout=0":          20 * time.Second,
		"postgres://u:p@/d?host=h&port=1&sslmode=verify-full": 10 * time.Second,
	} {
		server := parse(t, text)
		require.Equal(t, dsn.Postgres, server.System)
		require.Equal(t, timeout, server.Timeout, text)
		config := must.Get(pgx.ParseConfig(server.Driver))(t)
		require.Equal(t, []any{"u", "p", "h", uint16(1), "d"},
			[]any{config.User, config.Password, config.Host, config.Port, config.Database})
		require.True(t, strings.HasPrefix(server.Address, "h:1"), server.Address)
		require.True(t, strings.HasSuffix(server.Address, "/d"), server.Address)
	}
}

// Neither a question mark nor a # in a password begins the parameters. libpq agrees.
func TestPostgresPassword(t *testing.T) {
	for text, password := range map[string]string{
		"postgres://app:a?b@h:1/lab":                      "a?b",
		"postgres://app:a?connect_timeout=1@h:1/lab":      "a?connect_timeout=1",
		"postgres://app:a?b@h:1/lab?sslmode=disable":      "a?b",
		"postgres://app:a#b@h:1/lab":                      "a#b",
		"postgres://app:a%2F%40%3Fb@h:1,i:2/lab":          "a/@?b",
		"postgres://app:a?b@/lab?host=%2Frun%2Fpg&port=1": "a?b",
		"postgres://app:a?b@/lab?host=/run/pg&port=1":     "a?b",
	} {
		server := parse(t, text)
		require.Equal(t, "lab", server.Database, text)
		config, err := pgx.ParseConfig(server.Driver)
		require.NoError(t, err, text)
		require.Equal(t, []any{"app", password, "lab", 10 * time.Second},
			[]any{config.User, config.Password, config.Database, config.ConnectTimeout}, text)
		require.Contains(t, []string{"h", "/run/pg"}, config.Host, text)
	}
}

// If a part of a password could pass for something else, the URL is refused before anything is
// sent.
func TestAmbiguous(t *testing.T) {
	for _, text := range []string{
		"postgres://u:p@hush/word@h/d", "postgres://u:p@hush#word@h/d", "postgres://u:p@hush@h/d",
		"postgres://u:12/345hush@h/d", "postgres://u:p?@hush@h/d",
		"postgres://u:p@h/d@hush", "postgres://h:1/d?application_name=hush@x",
		"mysql://u:p@hush/word@h/d", "mysql://u:p@hush#word@h/d", "mysql://u:p@hush?word@h/d",
		"mysql://u:12/345hush@h/d", "mysql://u:12?hush@h/d", "mysql://u:12#hush@h/d",
		"mysql://h:1/d@hush", "mysql://u:p@h/d?connectionAttributes=hush@x",
	} {
		_, err := dsn.Parse(text, none)
		require.ErrorIs(t, err, dsn.ErrURL, text)
		require.ErrorContains(t, err, "%40", text)
		require.NotContains(t, err.Error(), "hush", text)
	}
	for text, want := range map[string]string{ // no colon before the last @, so no password
		"postgres://h/d?application_name=me@x":              "h:5432/d",
		"postgres://u@h/d?application_name=me@x":            "h:5432/d",
		"postgres:///d?user=app@x&host=h&password=p@sshush": "h:5432/d",
		"mysql://u@h/d?connectionAttributes=me@x":           "h:3306/d",
	} {
		server := parse(t, text)
		require.Equal(t, want, server.Address)
		require.NotContains(t, server.Redact(text+" "+server.Driver), "hush")
		if system, _, _ := strings.Cut(text, ":"); system == "postgres" {
			config, err := pgx.ParseConfig(server.Driver)
			require.NoError(t, err, text)
			require.Equal(t, 10*time.Second, config.ConnectTimeout, text)
		}
	}
	server := parse(t, "mysql://u:p@ss@h/d") // the driver splits at the last @, as Parse does
	require.Equal(t, "h:3306/d", server.Address)
	server = parse(t, "mysql://u@h/d%40e")
	require.Equal(t, "h:3306/d@e", server.Address)
}

// Where libpq has no limit, which 0 means to it, the default applies.
func TestPostgresWithoutLimit(t *testing.T) {
	for value, timeout := range map[string]time.Duration{"0": 10 * time.Second, "3": 3 * time.Second} {
		t.Setenv("PGCONNECT_TIMEOUT", value) // pgx reads it from the environment by itself
		server := must.Get(dsn.Parse("postgres://u:p@h:1/d", os.Getenv))(t)
		require.Equal(t, timeout, server.Timeout)
		require.Equal(t, timeout, must.Get(pgx.ParseConfig(server.Driver))(t).ConnectTimeout)
	}
}

// A text that is not a URL is refused, and not repeated.
func TestRefused(t *testing.T) {
	for _, text := range []string{
		"", "host=h password=hush", "u:hush@tcp(h)", "u:hush@tcp(h)/d/e@f", "u:hu/sh?x@tcp(h)",
		"u:hush@tcp(h)/d?tls=no", "u:hush@h/d", "mysql://u:hush@tcp(h:1)/d", "redis://u:hush@h",
		"postgres:u:hush@h", "mysql:/u:hush@h",
		"mysql://u:hush%zz@h/d", "mysql://u:hush@h:port/d", "mysql://u:hush@h x/d", "mysql://u%3Av:hush@h/d",
		"mysql://u:hush@h/d?timeout=soon",
		"postgres://u:hush%zz@h/d", "postgres://u:hush@h:port/d", "postgres://u:hush@h/d?sslmode=perhaps",
		"postgres://u:hush`: @h:x/d",
	} {
		_, err := dsn.Parse(text, none)
		require.ErrorIs(t, err, dsn.ErrURL, text)
		require.NotContains(t, err.Error(), "hush", text)
	}
}

func TestRedact(t *testing.T) {
	_, err := dsn.Parse("postgres://app:p%40ss/word@h/shop", none)
	require.Error(t, err, "a / ends the user part")
	server := parse(t, "postgres://app:p%40ss%2Fword@h/shop")
	for text, want := range map[string]string{
		"p@ss/word":                            "xxxxx",
		"p%40ss%2Fword":                        "xxxxx",
		"of mysql://u:other@h/d, and app":      "of mysql://u:xxxxx@h/d, and app",
		"x?password=a&sslpassword=b&c=d":       "x?password=xxxxx&sslpassword=xxxxx&c=d",
		"postgres://h:5432/d":                  "postgres://h:5432/d",
		"it has no password, and shop is open": "it has no password, and shop is open",
	} {
		require.Equal(t, want, server.Redact(text))
	}
	// A data source name has no escapes.
	server = parse(t, "app:p@ss/w rd@tcp(h)/shop")
	require.Equal(t, "as xxxxx on h:3306/shop", server.Redact("as p@ss/w rd on "+server.Address))
	require.Equal(t, "of app:xxxxx@tcp(h)/shop: no", dsn.Redact("of app:p:a@ss://@tcp(h)/shop: no"))
	for _, argument := range []string{"--dsn=app:%s@tcp(h)/shop", "app:%s@unix(/run/my.sock)/shop?timeout=3s"} {
		text := []byte(strings.Replace(argument, "%s", "p:a@ss://", 1))
		require.True(t, dsn.Scrub(text))
		require.Equal(t, strings.Replace(argument, "%s", "xxxxxxxxx", 1), string(text))
	}
	// A password that is public elsewhere is not a secret.
	server = parse(t, "postgres://postgres:postgres@h/postgres")
	require.Equal(t, `database "postgres"`, server.Redact(`database "postgres"`))
	require.NotContains(t, server.Redact("in postgres://postgres:postgres@h/postgres"), ":postgres@")
}

// Any password reaches the driver unchanged, and Scrub and Redact find it.
func FuzzPassword(f *testing.F) {
	for _, password := range []string{
		"plain", "a/b:c@d%e?f#g&h=i", "ünï", " ", "''", "x)y(z", "://", "@tcp(h)/d?", "\x00\xff",
	} {
		f.Add(password)
	}
	f.Fuzz(func(t *testing.T, password string) {
		if password == "" {
			return
		}
		text := (&url.URL{Scheme: "mysql", Host: "h:1", Path: "/d", User: url.UserPassword("u", password)}).String()
		server := parse(t, text)
		config := must.Get(mysql.ParseDSN(server.Driver))(t)
		require.Equal(t, password, config.Passwd)
		require.Equal(t, []string{"u", "h:1", "d"}, []string{config.User, config.Addr, config.DBName})

		argument := []byte("--dsn=" + text)
		require.True(t, dsn.Scrub(argument))
		require.Len(t, argument, len(text)+6)
		escaped := strings.TrimSuffix(strings.TrimPrefix(text, "mysql://u:"), "@h:1/d")
		require.Equal(t, "--dsn=mysql://u:"+strings.Repeat("x", len(escaped))+"@h:1/d", string(argument))
		require.Equal(t, "at mysql://u:xxxxx@h:1/d", dsn.Redact("at "+text))
	})
}

// parse reads a URL without the environment.
func parse(t *testing.T, text string) dsn.Server {
	t.Helper()
	server, err := dsn.Parse(text, none)
	require.NoError(t, err, text)
	return server
}
