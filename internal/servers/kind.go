package servers

import "os"

// Kind is a kind of database.
type Kind int

// The kinds of databases.
const (
	Postgres15 Kind = iota + 1
	Postgres18
	MySQL
	MariaDB
)

// String is the kind's name, as messages print it.
func (k Kind) String() string {
	return [...]string{Postgres15: "PostgreSQL 15", Postgres18: "PostgreSQL 18", MySQL: "MySQL", MariaDB: "MariaDB"}[k]
}

func (k Kind) postgres() bool { return k == Postgres15 || k == Postgres18 }

// driver is the database/sql driver for a database of this kind.
func (k Kind) driver() string {
	if k.postgres() {
		return "pgx"
	}
	return "mysql"
}

// variable is the environment variable with the address of a server of this kind.
func (k Kind) variable() string {
	switch k {
	case MySQL:
		return "TXLOCK_MYSQL"
	case MariaDB:
		return "TXLOCK_MARIADB"
	}
	return "TXLOCK_POSTGRES"
}

// Kinds are the kinds of databases to test on: all of them. If TXLOCK_POSTGRES gives a server, it
// stands for both versions of PostgreSQL.
func Kinds() []Kind {
	if os.Getenv(Postgres18.variable()) != "" {
		return []Kind{Postgres18, MySQL, MariaDB}
	}
	return []Kind{Postgres15, Postgres18, MySQL, MariaDB}
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
