// Package contest defines contestants of the benchmark. A contestant is one file in
// bench/contestants. It registers a [Contestant], whose clients have one method that matters,
// [Client.Hold].
package contest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// Group is the place of a contestant in the tables of the report.
type Group string

// The groups, in the order of the report.
const (
	TxLock  Group = "txlock"
	ByHand  Group = "the same by hand"
	InSQL   Group = "other locks in SQL"
	OnRedis Group = "Redis"
	OnEtcd  Group = "etcd"
)

var groups = []Group{TxLock, ByHand, InSQL, OnRedis, OnEtcd}

// Server is a kind of server that contestants run on.
type Server string

// The servers.
const (
	PostgreSQL Server = "PostgreSQL"
	MySQL      Server = "MySQL"
	MariaDB    Server = "MariaDB"
	Redis      Server = "Redis"
	Etcd       Server = "etcd"
)

// Databases are the servers in which the work under a lock can be too.
var Databases = []Server{PostgreSQL, MySQL, MariaDB}

// Servers are all servers.
var Servers = append(slices.Clone(Databases), Redis, Etcd)

// SQL reports whether the server is a database.
func (s Server) SQL() bool { return slices.Contains(Databases, s) }

// Waiting is how a waiter learns that the lock is free.
type Waiting string

// The ways of waiting.
const (
	Queued   Waiting = "queue in the server"
	Notified Waiting = "is notified"
	Polling  Waiting = "polls"
)

// PollInterval is the interval at which hand-made locks look whether the lock is free. It is the
// default of Spring Integration's JdbcLockRegistry. Libraries poll at their own defaults.
const PollInterval = 100 * time.Millisecond

// Part is a set of measurements.
type Part uint

// The measurements.
const (
	Turns      Part = 1 << iota // beside the same statements by hand
	Times                       // what a free lock costs, near and far
	Growth                      // with more keys, and over more distance
	Contention                  // the hand-off of a contended lock
	Faults                      // what becomes of data when something breaks
	Crowd                       // one process with more callers than connections
	HotRow                      // sales of one article
	Holders                     // what a process needs whose callers hold a key each, on a connection
	Claimers                    // the same without connections
	Waiters                     // what it needs whose callers wait for one key
	Standard   = Times | Contention | Faults
)

// Contestant is one way to lock, on one server.
type Contestant struct {
	// Name is unique. It ends with the name of the server if the same way exists on several:
	// "lease table, MySQL".
	Name   string
	Group  Group
	Server Server
	// Waits is how it waits. Remark says in a few words what a reader of the table should know
	// about its use here.
	Waits  Waiting
	Remark string
	// ByHand is the name of the contestant that has the same promise by hand, for those of txlock.
	ByHand string
	// Parts are the measurements that it takes part in.
	Parts Part

	// Prepare creates what the contestant needs on the server, and removes leftovers of earlier
	// runs; nil: nothing. It is called once, before any Open.
	Prepare func(ctx context.Context, env Environment) error
	// Open connects a client. Each process has its own.
	Open func(ctx context.Context, env Environment) (Client, error)
}

// In reports whether the contestant takes part in any of these measurements.
func (c Contestant) In(parts Part) bool { return c.Parts&parts != 0 }

// Environment is what a client needs to run.
type Environment struct {
	// Address is that of the contestant's server: a DSN as in servers.Server.DSN of a database, a
	// URL of etcd, host:port of Redis. A proxy may be in between.
	Address string
	// Lease is the life of a lock whose user must choose one; 0: the usual one.
	Lease time.Duration
	// Contenders is the number of callers that use the client at a time. Pools have as many
	// connections, and those of libraries that limit none have more.
	Contenders int
}

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
		return cmp.Or(
			cmp.Compare(slices.Index(groups, a.Group), slices.Index(groups, b.Group)),
			cmp.Compare(slices.Index(Servers, a.Server), slices.Index(Servers, b.Server)),
			cmp.Compare(a.Name, b.Name))
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
