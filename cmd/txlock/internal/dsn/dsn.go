// Package dsn reads the address of a server as a URL, as the txlock command takes it: postgres://…
// as libpq knows it, and for MySQL and MariaDB the same form, which becomes a data source name of
// go-sql-driver/mysql.
package dsn

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// System is which of the two dialects a server speaks.
type System string

// The systems. MySQL stands for MariaDB as well.
const (
	Postgres System = "postgres"
	MySQL    System = "mysql"
)

// connectTimeout bounds one attempt to connect, unless the URL has another.
const connectTimeout = 10 * time.Second

// Server is where a server is and how to log in there.
type Server struct {
	System System
	Driver string // as pgx takes it, or go-sql-driver/mysql
	// Address is the server without user and password, for people.
	Address string
	// Database is where the user works. On MySQL and MariaDB it may be empty, for none.
	Database string
	// Timeout is how long connecting may take, over all hosts of the URL.
	Timeout time.Duration

	secrets []string
}

// ErrURL occurs when the text is no URL of a server. It never repeats the text, which may hold a
// password.
var ErrURL = errors.New("not a URL of a server")

// SystemOf is which system a URL names, by its scheme.
func SystemOf(text string) (System, error) {
	scheme, _, found := strings.Cut(text, "://")
	switch strings.ToLower(scheme) {
	case "postgres", "postgresql":
		if found {
			return Postgres, nil
		}
	case "mysql", "mariadb":
		if found {
			return MySQL, nil
		}
	}
	return "", fmt.Errorf("%w: it must begin with postgres:// or mysql://", ErrURL)
}

// Parse reads a URL. Getenv is where the password comes from when the URL has none: MYSQL_PWD on
// MySQL and MariaDB; on PostgreSQL pgx reads PGPASSWORD, PGPASSFILE and the rest of libpq's
// variables by itself.
func Parse(text string, getenv func(string) string) (Server, error) {
	system, err := SystemOf(text)
	if err != nil {
		return Server{}, err
	}
	if ambiguous(system, text) {
		return Server{}, fmt.Errorf("%w: %s", ErrURL, hintEscape)
	}
	if system == Postgres {
		return parsePostgres(text, getenv)
	}
	return parseMySQL(text, getenv)
}

// ambiguous reports whether a password may stand before the last @, which is not the one that ends
// user and password for the driver: that takes a part of the password for the name of the server
// then, or of a database. It would be shown, and asked of a name server.
func ambiguous(system System, text string) bool {
	_, rest, _ := strings.Cut(text, "://")
	last := strings.LastIndexByte(rest, '@')
	if !strings.Contains(rest[:max(last, 0)], ":") {
		return false
	}
	if system == Postgres { // the first @ does, before a /: pgx reads URLs as libpq does
		return last >= 0 && strings.IndexAny(rest, "@/") != last
	}
	end := strings.IndexAny(rest, "/?#")
	return end >= 0 && last > end
}
