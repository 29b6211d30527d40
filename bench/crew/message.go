// Package crew has the processes of the benchmark. A parent gives jobs to workers, which are this
// program run again. Each worker has its own client of a contestant, like the replicas of a
// service.
package crew

import (
	"context"
	"fmt"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/database"
	"github.com/txlock/txlock/bench/results"
)

// Job is what a worker does next. Exactly one of the pointers is set.
type Job struct {
	Turns   *Turns   `json:",omitempty"`
	Contend *Contend `json:",omitempty"`
	Guard   *Guard   `json:",omitempty"`
	Crowd   *Crowd   `json:",omitempty"`
	Sell    *Sell    `json:",omitempty"`

	Footprint *Footprint `json:",omitempty"`
}

// Key is one of the numbered keys.
func Key(number int) string { return fmt.Sprintf("key-%d", number) }

// Entrant is a contestant and the environment of its client.
type Entrant struct {
	Contestant  string
	Environment contest.Environment
	// Books is the database that the user's work runs on. For contestants in SQL it is the lock's.
	Books Books
}

// Books is a database that work runs on.
type Books struct {
	Server  contest.Server
	Address string
}

// Open connects to the database, with this many connections.
func (b Books) Open(ctx context.Context, connections int) (*database.Database, error) {
	return database.Open(ctx, b.Server, b.Address, connections)
}

// Turns locks and unlocks without contention: the entrants take turns call by call, each on a
// connection of its own, which is new.
type Turns struct {
	Entrants []Entrant
	Keys     int // see Key
	AtOnce   int // number of the keys that a call locks, chosen anew for each
	Calls    int // of each entrant
	Allocs   bool
}

// Contend is a share of the contenders for one key.
type Contend struct {
	Entrant    Entrant
	First      int // number of this process's first contender; numbers are unique over all processes
	Contenders int
	Key        string
	Hold       time.Duration
	Rejoin     results.Rejoin
	Board      string
}

// Guard takes a lock, reads a number, waits for the order to go on, and writes the number plus
// Amount.
type Guard struct {
	Entrant Entrant
	Key     string
	Account string
	Amount  int64 // different for each process, so that the sum shows whose updates are there
}

// AccountTable has the numbers of all accounts.
const AccountTable = "bench_accounts"

// Crowd is a process with more callers than connections.
type Crowd struct {
	Entrant Entrant // its Contenders are the connections
	Callers int
	Key     string
	Free    string // a key that one more caller asks for
	Hold    time.Duration
	Board   string // counts entries of the free key
}

// Sell is a process whose callers sell the same article.
type Sell struct {
	Entrant   Entrant // its Contenders are the connections
	Callers   int
	First, Of int // the number of its first caller, among those of all processes
}

// Footprint is a process whose callers hold a key each, or wait for the same one, for a while.
type Footprint struct {
	Entrant Entrant
	Callers int
	OneKey  bool
	For     time.Duration
}

// Event is what a worker reports.
type Event string

// The events. A worker is Ready for each job, begins when it is told Go, and reports Done at the
// end. Contend, Crowd and Sell end when they are told Stop.
const (
	Ready  Event = "ready"
	Asking Event = "asking" // Guard: asks for the lock
	Inside Event = "inside" // Guard: has read the number
	Left   Event = "left"   // Guard: its work has ended; Guarded has what is certain by then
	Done   Event = "done"
)

// Order is what the parent tells a worker during a job.
type Order string

// The orders.
const (
	Go   Order = "go"
	OnIt Order = "go on"
	Stop Order = "stop"
)

// Message is a report of a worker.
type Message struct {
	Event Event
	At    int64  // time of Now
	Error string `json:",omitempty"` // why the job could not be done

	Turned       []Turned      `json:",omitempty"`
	Acquisitions []Acquisition `json:",omitempty"`
	Failed       int           `json:",omitempty"` // calls that returned an error
	Failure      string        `json:",omitempty"` // the text of one of them
	Guarded      *Guarded      `json:",omitempty"`
	Crowded      *Crowded      `json:",omitempty"`
	Sold         *Sold         `json:",omitempty"`
	Footprint    *Needs        `json:",omitempty"`
}

// Turned is the result of Turns for one entrant.
type Turned struct {
	Error     string  `json:",omitempty"` // why it took no part
	Latencies []int64 // of all calls, in nanoseconds
	Allocs    float64 // per call, with the choice of its keys
}

// Acquisition is one call of Hold. All times are from Now. The time of an event that did not happen
// is 0.
type Acquisition struct {
	Contender          int
	Asked, In, Out, At int64 // asked for the lock, entered, work ended, call returned
}

// Guarded is the result of Guard.
type Guarded struct {
	// Written: the database reported success of the write, and of the commit if the lock has a
	// transaction.
	Written bool
	// Told: the caller got an error.
	Told bool
}

// Crowded is the result of Crowd.
type Crowded struct {
	Took     time.Duration
	Hot      int     // entries of the key that all want
	Free     []int64 // the waits for the free key, in nanoseconds
	Cut      bool    // the end cut the last of them off
	Overlaps int
}

// Needs is the result of Footprint.
type Needs struct {
	Began     time.Duration // until all held their keys, or were about to ask for the one
	Memory    int64         // bytes more than before
	Processor time.Duration // while nothing happened
}

// Sold is the result of Sell.
type Sold struct {
	Took               time.Duration
	Latencies          []int64 // of the sales in that time
	Confirmed, Unclear int     // from the beginning, also outside that time
}
