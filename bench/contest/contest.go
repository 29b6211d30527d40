// Package contest defines contestants of the benchmark. A contestant is one file in
// bench/contestants. It registers a [Contestant], whose clients have one method that matters,
// [Client.Hold].
package contest

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Group is the place of a contestant in the tables of the report.
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
	Redis      Server = "Redis" // three independent instances
	ZooKeeper  Server = "ZooKeeper"
	Etcd       Server = "etcd"
)

// Servers are all servers.
var Servers = []Server{PostgreSQL, MySQL, MariaDB, Redis, ZooKeeper, Etcd}

// SQL reports whether the server is a database, so that the work under the lock can be in the same
// database.
func (s Server) SQL() bool { return s == PostgreSQL || s == MySQL || s == MariaDB }

// Waiting is how a waiter learns that the lock is free.
type Waiting string

// The ways of waiting.
const (
	Queued   Waiting = "queue in the server"
	Notified Waiting = "is notified"
	Polling  Waiting = "polls"
	Retrying Waiting = "does not wait: works, and does it again if another was faster"
)

// PollInterval is the interval at which hand-made locks look whether the lock is free. It is the
// default of Spring Integration's JdbcLockRegistry. Libraries poll at their own defaults.
const PollInterval = 100 * time.Millisecond

// Contestant is one way to lock, on one server.
type Contestant struct {
	// Name is unique. It ends with the name of the server if the same way exists on several:
	// "unique key, MySQL".
	Name   string
	Group  Group
	Server Server
	// Waits is how it waits. Remark says in a few words what a reader of the table should know
	// about its use here.
	Waits  Waiting
	Remark string
	// Leased: the user chooses the life of the lock, here Environment.Lease.
	Leased bool
	// Floor is, for contestants of txlock, the name of the one that does the same by hand.
	Floor string
	// ManyKeys: it takes part in the measurement of many keys. Slots is the number of slots for its
	// keys, or 0 without slots.
	ManyKeys bool
	Slots    int
	// SpecialSlots: it takes part in nothing else, because it is another contestant with fewer
	// slots.
	SpecialSlots bool

	// Prepare creates what the contestant needs on the server, and removes leftovers of earlier
	// runs. It is called once, before any Open. Keys are all keys that will be locked, for
	// contestants with a row for each key.
	Prepare func(ctx context.Context, env Environment, keys []string) error
	// Open connects a client. Each process has its own.
	Open func(ctx context.Context, env Environment) (Client, error)
}

// Environment is what a client needs to run.
type Environment struct {
	// Addresses are the addresses of the contestant's server: one, or three of Redis. Databases
	// have a DSN as in servers.Server.DSN, etcd a URL, the others host:port. A proxy may be in
	// between.
	Addresses []string
	// Lease is the life of a lock whose user must choose one.
	Lease time.Duration
	// Contenders is the number of callers that use the client at a time. Pools have at least as
	// many connections.
	Contenders int
}

// Address is the address of a contestant with one server.
func (e Environment) Address() string { return e.Addresses[0] }

// Work is the work under the lock. Its ctx ends when the library reports that the lock is lost, if
// the library reports that.
type Work func(ctx context.Context, tx Tx) error

// Tx is the transaction with which the lock ends: a pgx.Tx or a *sql.Tx. It is nil if there is none
// in which the user's work could run.
type Tx any

// Client is the client of a contestant in one process. Several goroutines may call its methods at a
// time.
type Client interface {
	// Hold waits until it has locked all keys, which are sorted and different, runs work, and
	// unlocks. It waits until ctx ends, even if the library limits tries by default. With a Tx of
	// its own it commits after work. It returns errors of work and of unlocking. The library may
	// run work more than once, each time in a new transaction.
	Hold(ctx context.Context, keys []string, work Work) error
	// Close ends connections and background goroutines.
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
