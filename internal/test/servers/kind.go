package servers

import (
	"os"
	"slices"
	"strings"
)

// Kind is a kind of database: a system, and the version of it that is started.
type Kind int

// The kinds of databases. MySQL and MariaDB stand for the version that a Debian release has:
// MariaDB for 10.11.
const (
	Postgres15 Kind = iota + 1
	Postgres18
	MySQL
	MariaDB
	Postgres14
	Postgres16
	Postgres17
	MariaDB11
)

// String is the kind's name, as messages print it.
func (k Kind) String() string {
	return [...]string{
		Postgres14: "PostgreSQL 14", Postgres15: "PostgreSQL 15", Postgres16: "PostgreSQL 16",
		Postgres17: "PostgreSQL 17", Postgres18: "PostgreSQL 18",
		MySQL: "MySQL", MariaDB: "MariaDB", MariaDB11: "MariaDB 11.8",
	}[k]
}

// Postgres says whether it is a version of PostgreSQL.
func (k Kind) Postgres() bool { return strings.HasPrefix(k.String(), "PostgreSQL") }

// MariaDB says whether it is a version of MariaDB.
func (k Kind) MariaDB() bool { return strings.HasPrefix(k.String(), "MariaDB") }

// version is the version by which the kind's name tells it from others, or empty.
func (k Kind) version() string {
	_, version, _ := strings.Cut(k.String(), " ")
	return version
}

// driver is the database/sql driver for a database of this kind.
func (k Kind) driver() string {
	if k.Postgres() {
		return "pgx"
	}
	return "mysql"
}

// variable is the environment variable with the address of a server of this kind.
func (k Kind) variable() string {
	switch {
	case k.Postgres():
		return "TXLOCK_POSTGRES"
	case k.MariaDB():
		return "TXLOCK_MARIADB"
	}
	return "TXLOCK_MYSQL"
}

// Kinds are the kinds of databases to test on. If TXLOCK_POSTGRES gives a server, it stands for
// both versions of PostgreSQL.
func Kinds() []Kind {
	if os.Getenv(Postgres18.variable()) != "" {
		return []Kind{Postgres18, MySQL, MariaDB}
	}
	return []Kind{Postgres15, Postgres18, MySQL, MariaDB}
}

// Newest are Kinds without the older version of PostgreSQL.
func Newest() []Kind { return slices.DeleteFunc(Kinds(), func(k Kind) bool { return k == Postgres15 }) }

// Further are the versions that only the full tier tests on, too. A server that is given stands for
// all versions.
func Further() []Kind {
	return slices.DeleteFunc([]Kind{Postgres14, Postgres16, Postgres17, MariaDB11},
		func(k Kind) bool { return os.Getenv(k.variable()) != "" })
}

// Postgres is the PostgreSQL that starts soonest: one that is given or installed, otherwise the
// newest.
func Postgres() Kind {
	if os.Getenv(Postgres15.variable()) == "" {
		if _, err := installed(Postgres15); err == nil {
			return Postgres15
		}
	}
	return Postgres18
}
