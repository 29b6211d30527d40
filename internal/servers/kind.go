package servers

import (
	"os"
	"syscall"
)

// Kind is a server that the project is tested on, or compared with.
type Kind int

// The kinds of servers: databases, and those whose locks benchmarks compare with.
const (
	Postgres15 Kind = iota
	Postgres18
	MySQL
	MariaDB
	Redis
	ZooKeeper
	Etcd
)

// String is the kind's name, as messages print it.
func (k Kind) String() string {
	return [...]string{"PostgreSQL 15", "PostgreSQL 18", "MySQL", "MariaDB", "Redis", "ZooKeeper", "etcd"}[k]
}

func (k Kind) postgres() bool { return k == Postgres15 || k == Postgres18 }

func (k Kind) database() bool { return k <= MariaDB }

// driver is the database/sql driver that a database of this kind is reached with.
func (k Kind) driver() string {
	if k.postgres() {
		return "pgx"
	}
	return "mysql"
}

// variable is the environment variable with the address of a server of this kind.
func (k Kind) variable() string {
	return [...]string{
		"TXLOCK_POSTGRES", "TXLOCK_POSTGRES", "TXLOCK_MYSQL", "TXLOCK_MARIADB", "TXLOCK_REDIS", "TXLOCK_ZOOKEEPER",
		"TXLOCK_ETCD",
	}[k]
}

// ending is the signal to which a server of this kind shuts down at once and leaves nothing behind.
func (k Kind) ending() syscall.Signal {
	switch k {
	case Redis, ZooKeeper: // else a Redis would leave the child that saves its data, and Java only print its threads
		return syscall.SIGTERM
	}
	return quickly
}

// Kinds are the kinds of databases to test on: all, or one PostgreSQL only where TXLOCK_POSTGRES
// gives one.
func Kinds() []Kind {
	if os.Getenv(Postgres18.variable()) != "" {
		return []Kind{Postgres18, MySQL, MariaDB}
	}
	return []Kind{Postgres15, Postgres18, MySQL, MariaDB}
}

// Postgres is the PostgreSQL that is ready soonest: one that is given or installed, else the
// newest.
func Postgres() Kind {
	if os.Getenv(Postgres15.variable()) == "" {
		if _, err := installed(Postgres15); err == nil {
			return Postgres15
		}
	}
	return Postgres18
}
