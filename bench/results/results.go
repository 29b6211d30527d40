// Package results has the results of a run of the benchmark, their file format, and their
// statistics.
package results

import "time"

// Run has all results of one run of the benchmark.
type Run struct {
	Started time.Time
	Took    time.Duration
	Mode    string // "short" or "full"
	Machine Machine

	Servers     []Server
	Contestants []Contestant
	Missing     []Missing

	Turns       []Turns
	Uncontended []Uncontended
	Growth      []Growth
	Contended   []Contended
	Faults      []Fault
	Network     Network
	Crowds      []Crowd
	HotRows     []HotRow
	Footprints  []Footprint
}

// Machine describes the machine of the run.
type Machine struct {
	CPU, Go    string
	Cores      int
	LoadBefore float64 // load average over one minute at the start of the run
	// Flush is the median time of a write of 4 KiB with fdatasync in the folder of the servers.
	Flush time.Duration
}

// Setting is a named setting, for people to read.
type Setting struct{ Name, Value string }

// Server describes one of the servers.
type Server struct {
	Name, Version, Origin string
	Durability            []Setting // as the server itself reports it
}

// Contestant is what the tables say of a contestant besides its figures.
type Contestant struct{ Name, Group, Server, Waits, Remark, ByHand string }

// Missing is a contestant that could not take part in one measurement or, if Measurement is empty,
// in any, or whose calls failed. Measurement begins with the name of the measurement.
type Missing struct{ Contestant, Measurement, Reason string }

// Turns is a contestant of txlock and the same promise by hand, call by call in turns. Rounds are
// the medians of the rounds, in nanoseconds. Each round has new connections.
type Turns struct {
	Contestant, With   string
	Rounds, WithRounds []float64
}

// Uncontended is one client that locks and unlocks a key that nobody else wants.
type Uncontended struct {
	Contestant string
	P50, P99   time.Duration // over all calls
	RoundTrips float64       // per call, counted on the wire
	Allocs     float64       // per call
}

// Growth is the time of a lock that nobody else wants, when something grows.
type Growth struct {
	Contestant string
	By         string // one of Axes
	Points     []Point
}

// What grows.
const (
	KeysOfALock = "keys of one lock"
	KeysInUse   = "keys in use"
	Distance    = "round trip"
)

// Axes are all that grows, in the order of the report.
var Axes = []string{KeysOfALock, KeysInUse, Distance}

// Point is a median where so much has grown: keys, or nanoseconds.
type Point struct {
	X   float64
	P50 time.Duration
}

// Rejoin is when a contender that has released the lock asks for it again.
type Rejoin string

// The ways to rejoin.
const (
	AtOnce    Rejoin = "at once"
	AfterNext Rejoin = "when the next one is inside"
)

// Contended is several processes that want one key.
type Contended struct {
	Contestant string
	Contenders int
	Rejoin     Rejoin
	Rounds     []ContendedRound
}

// ContendedRound is one round of Contended. Durations are in nanoseconds.
type ContendedRound struct {
	Took         time.Duration
	Acquisitions int
	// HandOff is the time from a release to the next entry, over all hand-offs: none is left out.
	HandOffP50, HandOffP99 time.Duration
	// HandOffs is the number of hand-offs. Cut is how many of them the end of the run cut off.
	// These count with the time that had passed, so their real times are at least that.
	HandOffs, Cut int
	Utilisation   float64       // share of the time in which the lock was held
	LongestWait   time.Duration // includes those that still wait at the end
	// Jain is the fairness of the contenders' numbers of acquisitions. 1 is as equal as possible
	// with that many acquisitions; 1/n means that one contender has all.
	Jain     float64
	Overlaps int // number of entries while another was inside
	Failed   int // number of calls that returned an error
}

// Fault is what happened when something broke.
type Fault struct {
	Contestant string
	Fault      string // one of FaultNames
	Trials     []FaultTrial
}

// The faults.
const (
	HolderKilled  = "holder killed"
	HolderStopped = "holder stopped"
	HolderCutOff  = "network silent"
	WaiterKilled  = "waiter killed"
)

// FaultNames are the faults, in the order of the tables.
var FaultNames = []string{HolderKilled, HolderStopped, HolderCutOff, WaiterKilled}

// FaultTrial is one trial of a fault.
type FaultTrial struct {
	// Regained is how long after the fault the next contender entered, or after the release if the
	// fault did not hit the holder. It is negative if that took longer than Limit, after which the
	// fault was ended.
	Regained, Limit time.Duration
	// Lost is the number of updates that were reported as done, but are missing from the database
	// at the end or are in it more than once.
	Lost int
	// Told is whether the holder got an error: from its work, whose context had ended, or from the
	// unlock or commit.
	Told bool
}
