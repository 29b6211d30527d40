// Package crew is the processes of the benchmark: a parent gives jobs to workers, which are this
// program run again. Each worker has its own client of a contestant, as the replicas of a service
// have.
package crew

import (
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// Job is what a worker does next. Exactly one of the pointers is set.
type Job struct {
	Cycle   *Cycle   `json:",omitempty"`
	Contend *Contend `json:",omitempty"`
	Replay  *Replay  `json:",omitempty"`
	Guard   *Guard   `json:",omitempty"`
}

// Entrant is a contestant and what its client is given.
type Entrant struct {
	Contestant  string
	Environment contest.Environment
	// Books are the address of the database that the user's work is on. Of contestants in SQL it is
	// the lock's.
	Books Books
}

// Books is a database that work is done on.
type Books struct {
	Server  contest.Server
	Address string
}

// Cycle locks and unlocks, alone, with one contestant after the other, in rounds.
type Cycle struct {
	Entrants []Entrant
	Key      string
	Rounds   int
	Block    time.Duration // of each entrant in each round
	Least    int           // cycles in a block, at least
	WarmUp   time.Duration // of each server, before the first round: one that is written in Java becomes faster
	Seed     uint64
}

// Contend is a share of the contenders for one key, or for several.
type Contend struct {
	Entrant    Entrant
	First      int // number of the first contender of this process; the contenders of all are numbered through
	Contenders int
	Keys       []string // one of them is chosen each time, by Zipf's law
	Rehearsal  []string // a key for each contender, to connect with
	Hold       time.Duration
	Rejoin     results.Rejoin
	Board      string
	Seed       uint64
}

// Replay is a process of the shop.
type Replay struct {
	Entrant Entrant
	Workers int
	Orders  []int // indices in what shop.Load(Replays) returns, in the order in which they come in
	// Rehearsal is a key for each worker, to connect with.
	Rehearsal []string
}

// Guard holds a lock, reads a number, waits until it is told to go on, and writes the number plus
// an amount.
type Guard struct {
	Entrant Entrant
	Key     string
	Account string
	Amount  int64 // so that it shows in the sum whose update is there
}

// Event is what a message of a worker says.
type Event string

// The events. A worker is Ready for each job, begins when it is told Go, and is Done with it.
// Contend and Replay end when they are told Stop.
const (
	Ready  Event = "ready"
	Asking Event = "asking" // Guard: for the lock
	Inside Event = "inside" // Guard: has read the number
	Left   Event = "left"   // Guard: its work has ended; what is certain by then is in Guarded
	Turned Event = "turned" // Cycle: a round is over
	Done   Event = "done"
)

// Order is what the parent says during a job.
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
	At    int64  // Now
	Error string `json:",omitempty"` // the job could not be done

	Cycles       []Cycled      `json:",omitempty"`
	Acquisitions []Acquisition `json:",omitempty"`
	Failed       int           `json:",omitempty"` // calls that returned an error
	Failure      string        `json:",omitempty"` // one of them
	Replayed     *Replayed     `json:",omitempty"`
	Guarded      *Guarded      `json:",omitempty"`
}

// Cycled is the result of Cycle for one entrant.
type Cycled struct {
	Error      string `json:",omitempty"` // it took no part, or not to the end
	Rounds     []float64
	Latencies  []int64 // all, in nanoseconds
	Allocs     float64
	AllocBytes float64
}

// Acquisition is one call of Hold. All times are of Now; those of what did not happen are 0.
type Acquisition struct {
	Contender          int
	Asked, In, Out, At int64 // asked for, inside, work ended, call returned
}

// Replayed is the result of Replay: the orders by what became of them.
type Replayed struct {
	Booked, Refused, Known []int
	InTime                 int // decided before the parent said that it is enough
	Unclear                int // that ended a commit under way, of which nobody knows whether it took place
}

// Guarded is the result of Guard.
type Guarded struct {
	// Written: the database reported success of the write, and of the commit if the lock has a
	// transaction.
	Written bool
	// Told: the caller got an error.
	Told  bool
	Error string
}
