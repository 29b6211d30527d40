// Package measure does the measurements, one in each file, on all contestants in turns.
package measure

import (
	"time"

	"github.com/txlock/txlock/bench/results"
)

// Plan is how thoroughly to measure.
type Plan struct {
	Mode string

	Turns       TurnsPlan
	Uncontended TurnsPlan
	Growth      GrowthPlan
	Contended   ContendedPlan
	Faults      FaultsPlan
	Network     NetworkPlan
	Crowds      CrowdsPlan
	HotRows     HotRowsPlan
	Footprint   FootprintPlan
}

// TurnsPlan is for clients that call in turns.
type TurnsPlan struct {
	Rounds int // with new connections
	Calls  int // of each in each round
}

// GrowthPlan has the numbers of keys and the distances.
type GrowthPlan struct {
	KeysOfALock, KeysInUse []int
	RoundTrips             []time.Duration
	Rounds, Calls          int // of each
}

// ContendedPlan is the settings of contenders, and how long each is measured.
type ContendedPlan struct {
	Settings []ContendedSetting
	Hold     time.Duration
	Rounds   int
	Window
}

// ContendedSetting is a number of contenders, and when they ask again.
type ContendedSetting struct {
	Contenders int
	Rejoin     results.Rejoin
}

// Window is the length of a run. It ends after For if the lock was entered at least Least times,
// and after AtMost in any case.
type Window struct {
	For    time.Duration
	Least  int64
	AtMost time.Duration
}

// FaultsPlan is for the faults.
type FaultsPlan struct {
	Trials  int
	Lease   time.Duration
	Limit   time.Duration // a fault without recovery ends after this time
	AtATime int           // number of scenes at once, most of which wait
}

// NetworkPlan is for the measurements with a network in between.
type NetworkPlan struct {
	Delay       time.Duration // each way
	Uncontended TurnsPlan
	HotRows     HotRowsPlan
}

// CrowdsPlan is for one process with many callers. Window counts entries of the free key.
type CrowdsPlan struct {
	Callers     []int
	Connections int
	Hold        time.Duration
	Rounds      int
	Window
}

// HotRowsPlan is for the sales of one article. Callers and Connections are those of one process.
type HotRowsPlan struct {
	Processes   int
	Callers     []int
	Connections int
	Rounds      int
	For         time.Duration
}

// FootprintPlan is the numbers of callers, and for how long the process is looked at.
type FootprintPlan struct {
	Holders, Claimers, Waiters int
	For                        time.Duration
}

// lease is the life of locks where nothing should break: long enough for a noisy machine.
const lease = 20 * time.Second

// processes is the number of processes of contenders.
const processes = 16

// mostSessions is how many contenders may have a session each. The servers take 1000.
const mostSessions = 256

// Short is for every day: all contestants in less than six minutes.
func Short() Plan {
	return Plan{
		Mode:        "short",
		Turns:       TurnsPlan{Rounds: 10, Calls: 100},
		Uncontended: TurnsPlan{Rounds: 4, Calls: 50},
		Growth: GrowthPlan{
			KeysOfALock: []int{1, 10, 100}, KeysInUse: []int{1, 100, 10_000},
			RoundTrips: []time.Duration{time.Millisecond, 10 * time.Millisecond}, Rounds: 1, Calls: 20,
		},
		Contended: ContendedPlan{
			Settings: []ContendedSetting{{4, results.AfterNext}, {32, results.AfterNext}, {32, results.AtOnce}},
			Hold:     time.Millisecond, Rounds: 1,
			Window: Window{For: 300 * time.Millisecond, Least: 10, AtMost: 900 * time.Millisecond},
		},
		Faults: FaultsPlan{Trials: 1, Lease: 2 * time.Second, Limit: 7 * time.Second, AtATime: 64},
		Network: NetworkPlan{
			Delay:       500 * time.Microsecond,
			Uncontended: TurnsPlan{Rounds: 1, Calls: 20},
			HotRows: HotRowsPlan{
				Processes: 4, Callers: []int{16}, Connections: 16, Rounds: 1, For: 300 * time.Millisecond,
			},
		},
		Crowds: CrowdsPlan{
			Callers: []int{50, 500}, Connections: 10, Hold: 2 * time.Millisecond, Rounds: 1,
			Window: Window{For: 400 * time.Millisecond, Least: 2, AtMost: 1200 * time.Millisecond},
		},
		HotRows: HotRowsPlan{
			Processes: 1, Callers: []int{256}, Connections: 64, Rounds: 1, For: 300 * time.Millisecond,
		},
		Footprint: FootprintPlan{Holders: 100, Claimers: 1000, Waiters: 1000, For: 500 * time.Millisecond},
	}
}

// Full is for publishing: more rounds, longer windows and more points in the plots.
func Full() Plan {
	p := Short()
	p.Mode = "full"
	p.Turns = TurnsPlan{Rounds: 30, Calls: 300}
	p.Uncontended = TurnsPlan{Rounds: 16, Calls: 100}
	p.Growth = GrowthPlan{
		KeysOfALock: []int{1, 10, 100, 256}, KeysInUse: []int{1, 10, 100, 1000, 10_000, 100_000},
		RoundTrips: []time.Duration{
			200 * time.Microsecond, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond,
			200 * time.Millisecond,
		},
		Rounds: 3, Calls: 30,
	}
	p.Contended.Settings = []ContendedSetting{
		{2, results.AfterNext},
		{8, results.AfterNext},
		{64, results.AfterNext},
		{mostSessions, results.AfterNext},
		{1000, results.AfterNext},
		{64, results.AtOnce},
	}
	p.Contended.Rounds = 2
	p.Contended.Window = Window{For: 400 * time.Millisecond, Least: 20, AtMost: 1300 * time.Millisecond}
	p.Faults.Trials, p.Faults.Limit = 2, 8*time.Second
	p.Network.Uncontended = TurnsPlan{Rounds: 8, Calls: 30}
	p.Network.HotRows.Rounds, p.Network.HotRows.For = 2, time.Second
	p.Crowds.Callers = []int{9, 50, 200, 500}
	p.Crowds.Window = Window{For: 600 * time.Millisecond, Least: 3, AtMost: 4 * time.Second}
	p.Footprint = FootprintPlan{Holders: 900, Claimers: 10_000, Waiters: 10_000, For: 10 * time.Second}
	p.HotRows.Callers, p.HotRows.Rounds, p.HotRows.For = []int{1, 256}, 2, 500*time.Millisecond
	return p
}
