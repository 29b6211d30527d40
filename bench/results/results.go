// Package results has what a run of the benchmark measured, as it is written to a file, and the
// statistics of it.
package results

import "time"

// Run is everything that one run of the benchmark found.
type Run struct {
	Started time.Time
	Took    time.Duration
	Mode    string // "short" or "full"
	Seed    uint64
	Machine Machine
	// Settings say how hard the run tried: rounds, times, lease, poll interval, as printed.
	Settings []Setting

	Servers     []Server
	Contestants []Contestant
	Missing     []Missing

	Uncontended []Uncontended
	Contended   []Contended
	ManyKeys    []ManyKeys
	Orders      []Orders
	Faults      []Fault
}

// Machine is where it ran.
type Machine struct {
	CPU, Kernel, Go string
	Cores           int
	MemoryGiB       float64
	LoadBefore      float64 // load average of one minute when the run began
	// Flush is what a write of 4 KiB with fdatasync takes in the folder of the servers, median.
	Flush time.Duration
}

// Setting is a named setting, for people.
type Setting struct{ Name, Value string }

// Server is one of the servers.
type Server struct {
	Name, Version, Origin string
	Durability            []Setting // as the server itself tells
}

// Contestant is what the tables say of a contestant besides its figures.
type Contestant struct {
	Name, Group, Server, Waits, Remark, Floor string
	Leased                                    bool
}

// Missing is a contestant that could not take part, in everything or in one measurement, or of
// which calls failed.
type Missing struct{ Contestant, Measurement, Reason string }

// Uncontended is one client that locks and unlocks a key, with nobody else.
type Uncontended struct {
	Contestant string
	Cycles     int
	P50, P99   time.Duration // over all cycles
	Mean       time.Duration // of all cycles
	// Rounds are the medians of the rounds, in nanoseconds. The same index in another contestant on
	// the same server is the same moment, but for the time that the others on that server take.
	Rounds     []float64
	RoundTrips float64 // per cycle, counted on the wire
	Allocs     float64 // per cycle
	AllocBytes float64 // per cycle
}

// Rejoin is when one who has released the lock asks for it again.
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
	Processes  int
	Hold       time.Duration // as asked for
	Rejoin     Rejoin
	Rounds     []ContendedRound
}

// ContendedRound is one round of it. Durations are in nanoseconds.
type ContendedRound struct {
	Took         time.Duration
	Acquisitions int
	// HandOff is from a release to the next one inside, over all that happened: nothing is left
	// out, see the report. Empty for contestants that do not exclude.
	HandOffP50, HandOffP99 time.Duration
	// HandOffs is how many there were. Cut is how many of them the end of the run cut off: the
	// figures have what had passed by then, and are at least that.
	HandOffs, Cut int
	Utilisation   float64 // share of the time that the lock was held
	ServerCPU     time.Duration
	Connections   int
	// Inversions are pairs of acquisitions in the wrong order of asking, per acquisition;
	// Displacement is the mean distance of a place in the order of entering from the place in the
	// order of asking.
	Inversions, Displacement float64
	LongestWait              time.Duration // those who still wait at the end included
	// Jain is the fairness of the numbers of acquisitions of the contenders: 1 is as equal as so
	// many can be, 1/n is one has all.
	Jain     float64
	Overlaps int // times that one was inside while another was
	Failed   int // calls that returned an error
}

// ManyKeys is the throughput of many contenders over several keys.
type ManyKeys struct {
	Contestant string
	Slots      int // 0: the lock has no slots
	Keys       int
	Contenders int
	Hold       time.Duration
	PerSecond  []float64 // of each round
}

// Orders is the replay of real orders.
type Orders struct {
	Contestant string
	Articles   string // "one", "several" or "all": which orders were replayed
	Rounds     []OrdersRound
}

// OrdersRound is one replay.
type OrdersRound struct {
	Orders    int // decided in time
	Took      time.Duration
	Complaint string // what an audit of the books found wrong; empty: nothing
}

// Fault is what happened when something broke.
type Fault struct {
	Contestant string
	Fault      string // one of the names in FaultNames
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

// FaultTrial is one trial of it.
type FaultTrial struct {
	// Regained is how long after the fault, or after the release if the fault did not touch the
	// holder, the next one was inside. Negative: not within Limit, after which the fault was ended.
	Regained, Limit time.Duration
	// Lost is how many updates that were reported as done are not in the database at the end, or
	// are there more than once.
	Lost int
	// Told: the holder got an error of its work, whose context had ended, or of the unlock or
	// commit.
	Told bool
	Note string // what was unexpected
}
