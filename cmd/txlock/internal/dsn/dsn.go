// Package dsn reads the address of a server, as the txlock command takes it. For PostgreSQL that is
// postgres://… as libpq knows it. For MySQL and MariaDB it is a URL of the same form, or a data
// source name of go-sql-driver/mysql.
package dsn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// System is the dialect that a server speaks.
type System string

// The systems. MySQL includes MariaDB.
const (
	Postgres System = "postgres"
	MySQL    System = "mysql"
)

// connectTimeout limits one attempt to connect, unless the URL has a limit.
const connectTimeout = 10 * time.Second

// Server is where a server is and how to log in there.
type Server struct {
	System System
	Driver string // in the form of pgx or go-sql-driver/mysql
	// Address is the server without user and password, for people to read.
	Address string
	// Database is where the user works. On MySQL and MariaDB it may be empty.
	Database string
	// Timeout is how long connecting may take, over all hosts of the URL.
	Timeout time.Duration

	secrets []string
}

// ErrURL occurs when a text is not the URL of a server. It never repeats the text, which may hold a
// password.
var ErrURL = errors.New("not a URL of a server")

// Parse reads a URL, or a data source name. If it has no password, that comes from getenv: from
// MYSQL_PWD on MySQL and MariaDB. On PostgreSQL pgx reads PGPASSWORD, PGPASSFILE and the rest of
// libpq's variables by itself.
func Parse(text string, getenv func(string) string) (Server, error) {
	system, parse := Postgres, parsePostgres
	switch scheme, _, found := strings.Cut(text, "://"); {
	case found && slices.Contains([]string{"postgres", "postgresql"}, strings.ToLower(scheme)):
	case found && slices.Contains([]string{"mysql", "mariadb"}, strings.ToLower(scheme)):
		system, parse = MySQL, parseMySQL
	case sourceName.MatchString(text):
		return parseSourceName(text, getenv)
	default:
		return Server{}, fmt.Errorf("%w: it must begin with postgres:// or mysql://, or be "+
			"user:password@tcp(host:3306)/database", ErrURL)
	}
	if ambiguous(system, text) {
		return Server{}, fmt.Errorf("%w: %s", ErrURL, hintEscape)
	}
	return parse(text, getenv)
}

// ambiguous reports whether a password may contain the @ at which the driver splits the URL. The
// driver would then take part of the password for a server's name, or a database's. That part would
// be shown, and sent to a name server.
func ambiguous(system System, text string) bool {
	_, rest, _ := strings.Cut(text, "://")
	last := strings.LastIndexByte(rest, '@')
	if !strings.Contains(rest[:max(last, 0)], ":") {
		return false
	}
	if system == Postgres { // the first @ before a / ends user and password: pgx reads URLs as libpq does
		return strings.IndexAny(rest, "@/") != last
	}
	end := strings.IndexAny(rest, "/?#")
	return end >= 0 && last > end
}
