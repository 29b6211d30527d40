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
	InProcess Group = "one process"
)

// Groups are all groups, in the order of the report.
var Groups = []Group{TxLock, Floor, ByHand, Native, Libraries, OnRedis, OnZK, OnEtcd, InProcess}

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

// BriskInterval is the interval of hand-made locks that somebody has made faster.
const BriskInterval = 10 * time.Millisecond

// Part is a set of measurements.
type Part uint

// The measurements.
const (
	Times      Part = 1 << iota // what a free lock costs
	Contention                  // the hand-off of a contended lock
	HandOff                     // the same with more rounds, for ratios
	Data                        // orders
	Faults                      // what becomes of data when something breaks
	ManyKeys                    // throughput by the number of keys
	Crowd                       // one process with more callers than connections
	HotRow                      // sales of one article
	Standard   = Times | Contention | Data | Faults
)

// In reports whether the contestant takes part in a measurement.
func (c Contestant) In(part Part) bool {
	if c.Parts == 0 {
		return Standard&part != 0
	}
	return c.Parts&part != 0
}

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
	// For contestants of txlock, Floor is the name of the one that gives the same promise by hand,
	// and Bare of the one that only locks the row.
	Floor, Bare string
	// Parts are the measurements that it takes part in; 0 stands for Standard.
	Parts Part
	// Slots is the number of slots for its keys, or 0 without slots.
	Slots int

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
	// Contenders is the number of callers that use the client at a time. Pools have as many
	// connections, and those of libraries that limit none have more.
	Contenders int
	// Callers is their number in a crowd, where Contenders is that of the connections. It is 0
	// elsewhere.
	Callers int
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

// Seller is a Client that sells in a way of its own in the measurement of a hot row. Others sell in
// Hold.
type Seller interface {
	// Sell books an order of one piece of the only article. It returns nil if the order is
	// committed.
	Sell(ctx context.Context, order int64) error
}

// The tables of the hot row: one article, and its orders.
const (
	StockTable = "bench_hot_stock"
	SalesTable = "bench_hot_sales"
	Article    = 1
)

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
