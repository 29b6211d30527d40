// Package contest says what a contestant of the benchmark is. A contestant is one file in
// bench/contestants: it registers a [Contestant] whose clients have one method, [Client.Hold].
package contest

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Group is where a contestant stands in the tables of the report.
type Group string

// The groups, in the order of the report.
const (
	TxLock    Group = "txlock"
	Floor     Group = "the floor"
	ByHand    Group = "SQL, by hand"
	Native    Group = "SQL, native"
	Libraries Group = "SQL libraries"
	OnRedis   Group = "Redis"
	OnZK      Group = "ZooKeeper"
	OnEtcd    Group = "etcd"
)

// Groups are all groups, in the order of the report.
var Groups = []Group{TxLock, Floor, ByHand, Native, Libraries, OnRedis, OnZK, OnEtcd}

// Server is a kind of server that contestants run on.
type Server string

// The servers.
const (
	PostgreSQL Server = "PostgreSQL"
	MySQL      Server = "MySQL"
	MariaDB    Server = "MariaDB"
	Redis      Server = "Redis" // three instances that do not know each other
	ZooKeeper  Server = "ZooKeeper"
	Etcd       Server = "etcd"
)

// Servers are all servers.
var Servers = []Server{PostgreSQL, MySQL, MariaDB, Redis, ZooKeeper, Etcd}

// SQL reports whether the server is a database, so that work done under the lock can be in the same
// place.
func (s Server) SQL() bool { return s == PostgreSQL || s == MySQL || s == MariaDB }

// Waiting is how one who waits learns that the lock is free.
type Waiting string

// The ways of waiting.
const (
	Queued   Waiting = "queue in the server"
	Notified Waiting = "is notified"
	Polling  Waiting = "polls"
	Retrying Waiting = "does not wait: works, and does it again if another was faster"
)

// PollInterval is how often the locks written by hand look whether the lock is free: as often as
// Spring Integration's JdbcLockRegistry does by default. The libraries poll as they do by default.
const PollInterval = 100 * time.Millisecond

// Contestant is one way to lock, on one server.
type Contestant struct {
	// Name is unique, and ends with the server's if the same way exists on several: "unique key,
	// MySQL".
	Name   string
	Group  Group
	Server Server
	// Waits is how it waits, and Remark what a reader of the table should know of how it is used
	// here, in a few words.
	Waits  Waiting
	Remark string
	// Leased: the lock has a life that the user chooses. It is Environment.Lease.
	Leased bool
	// Floor is the name of the contestant that does the same by hand, for txlock's own.
	Floor string
	// ManyKeys: it takes part in the measurement of many keys. Slots is how many slots its keys
	// share, 0 if it has none.
	ManyKeys bool
	Slots    int
	// SpecialSlots: it takes part in nothing else, as it is another one with fewer slots.
	SpecialSlots bool

	// Prepare creates what the contestant needs on the server, and removes what an earlier run
	// left. It is called once, before any Open. Keys are all keys that will be locked: for
	// contestants with a row for each.
	Prepare func(ctx context.Context, env Environment, keys []string) error
	// Open connects a client. Each process has its own.
	Open func(ctx context.Context, env Environment) (Client, error)
}

// Environment is what a client is given to run with.
type Environment struct {
	// Addresses are of the contestant's server: one, or three of Redis. Those of databases are as
	// in servers.Server.DSN, of etcd a URL, else host:port. A proxy may be in between.
	Addresses []string
	// Lease is the life of a lock whose user must choose one.
	Lease time.Duration
	// Contenders is how many callers will use the client at a time. Pools have at least as many
	// connections.
	Contenders int
}

// Address is the address of a contestant with one server.
func (e Environment) Address() string { return e.Addresses[0] }

// Work is what is done under the lock. Its ctx ends when the client's library says that the lock is
// lost, if it does say so.
type Work func(ctx context.Context, tx Tx) error

// Tx is the transaction that the lock lives and dies with: a pgx.Tx or a *sql.Tx. It is nil if the
// lock has none that the user's work could run in.
type Tx any

// Client is one process's use of a contestant. Its methods may be called by several goroutines at a
// time.
type Client interface {
	// Hold waits until it has locked all keys, which are sorted and different, runs work, and
	// unlocks. It waits until ctx ends, whatever limit on tries a library has by default. With a Tx
	// of its own it commits after work. An error of work is returned, and so is an error of
	// unlocking. Work that the library runs more than once, each time in a new transaction, is
	// allowed.
	Hold(ctx context.Context, keys []string, work Work) error
	// Close lets go of connections and background goroutines.
	Close() error
}

var registered []Contestant

// Register adds a contestant. It is called from init of its file.
func Register(c Contestant) {
	if slices.ContainsFunc(registered, func(other Contestant) bool { return other.Name == c.Name }) {
		panic(fmt.Sprintf("bench: two contestants are called %q", c.Name))
	}
	registered = append(registered, c)
}

// All returns the contestants, by group, server and name.
func All() []Contestant {
	all := slices.Clone(registered)
	slices.SortFunc(all, func(a, b Contestant) int {
		for _, order := range []int{
			slices.Index(Groups, a.Group) - slices.Index(Groups, b.Group),
			slices.Index(Servers, a.Server) - slices.Index(Servers, b.Server),
		} {
			if order != 0 {
				return order
			}
		}
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

// Find returns the contestant of a name.
func Find(name string) (Contestant, error) {
	for _, c := range registered {
		if c.Name == name {
			return c, nil
		}
	}
	return Contestant{}, fmt.Errorf("no contestant is called %q", name)
}
