package dsn

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// parsePostgres leaves the URL as it is, except for the time to connect: pgx would allow two
// minutes.
func parsePostgres(text string, getenv func(string) string) (Server, error) {
	_, rest, _ := strings.Cut(text, "://")
	text = "postgres://" + rest // pgx wants the scheme in lower case
	if environment := getenv("PGCONNECT_TIMEOUT"); (environment == "" || environment == "0") &&
		!strings.Contains(queryOf(text), "connect_timeout=") {
		text = withParameter(text, "connect_timeout", strconv.Itoa(int(connectTimeout.Seconds())))
	}
	config, err := pgconn.ParseConfig(text)
	if err != nil {
		return Server{}, postgresError(err)
	}
	server := Server{System: Postgres, Driver: text, Database: config.Database, Timeout: config.ConnectTimeout}
	if server.Timeout == 0 { // libpq has no limit then, but nobody waits that long for a command
		server.Timeout = connectTimeout
	}
	var addresses []string
	add := func(host string, port uint16) {
		address := net.JoinHostPort(host, strconv.Itoa(int(port)))
		if strings.HasPrefix(host, "/") {
			address = host + "/.s.PGSQL." + strconv.Itoa(int(port))
		}
		if len(addresses) == 0 || addresses[len(addresses)-1] != address { // the same address again without TLS
			addresses = append(addresses, address)
		}
	}
	add(config.Host, config.Port)
	for _, fallback := range config.Fallbacks {
		add(fallback.Host, fallback.Port)
	}
	server.Address = strings.Join(addresses, ",") + "/" + config.Database
	server.Timeout *= time.Duration(len(addresses))
	server.keepSecret(text, config.Password, config.User, config.Database, config.Host)
	return server, nil
}

// queryOf returns the query of a URL, with its question mark. A question mark in a password begins
// no query.
func queryOf(text string) string {
	_, rest, _ := strings.Cut(text, "://")
	if at := strings.IndexAny(rest, "@/"); at >= 0 && rest[at] == '@' { // an @ before a / ends user and password
		rest = rest[at+1:]
	}
	if at := strings.IndexByte(rest, '?'); at >= 0 {
		return rest[at:]
	}
	return ""
}

func withParameter(text, name, value string) string {
	separator := "?"
	if queryOf(text) != "" {
		separator = "&"
	}
	return text + separator + name + "=" + url.QueryEscape(value)
}

// postgresError is pgx's error without the URL. An error of net/url quotes parts of the URL, which
// may belong to a password.
func postgresError(err error) error {
	var bad *pgconn.ParseConfigError
	if !errors.As(err, &bad) {
		return ErrURL
	}
	_, reason, found := strings.Cut(bad.Error(), "`: ")
	if !found || strings.Contains(reason, "parse as URL") || strings.Contains(reason, "`: ") {
		return fmt.Errorf("%w: %s", ErrURL, hintEscape)
	}
	return fmt.Errorf("%w: %s", ErrURL, reason)
}

const hintEscape = "it must be postgres://user:password@host:port/database or mysql://… ; in user and password " +
	"write characters such as @ : / ? # % as in " +
	"URLs, %40 for @, which is also to be written in the name of a database and behind ?"
