// Package measure does the measurements, one in each file, on all contestants in turns.
package measure

import (
	"fmt"
	"time"

	"github.com/txlock/txlock/bench/results"
)

// Plan is how thoroughly to measure.
type Plan struct {
	Mode string
	Seed uint64

	Turns       TurnsPlan
	Uncontended TurnsPlan
	Growth      GrowthPlan
	Contended   ContendedPlan
	Faults      FaultsPlan
	Network     NetworkPlan
	Crowds      CrowdsPlan
	HotRows     HotRowsPlan
}

// TurnsPlan is for clients that call in turns.
type TurnsPlan struct {
	Rounds int // with new connections
	Calls  int // of each in each round
	Allocs bool
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

// lease is the life of locks where nothing should break: long enough for a noisy machine.
const lease = 20 * time.Second

// processes is the number of processes of contenders.
const processes = 8

// Short is for every day: all contestants in less than six minutes.
func Short() Plan {
	return Plan{
		Mode:        "short",
		Turns:       TurnsPlan{Rounds: 10, Calls: 100},
		Uncontended: TurnsPlan{Rounds: 4, Calls: 50, Allocs: true},
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
	}
}

// Full is for publishing.
func Full() Plan {
	return Plan{
		Mode:        "full",
		Turns:       TurnsPlan{Rounds: 30, Calls: 300},
		Uncontended: TurnsPlan{Rounds: 16, Calls: 100, Allocs: true},
		Growth: GrowthPlan{
			KeysOfALock: []int{1, 10, 100, 256}, KeysInUse: []int{1, 10, 100, 1000, 10_000, 100_000},
			RoundTrips: []time.Duration{
				200 * time.Microsecond, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond,
				200 * time.Millisecond,
			},
			Rounds: 3, Calls: 30,
		},
		Contended: ContendedPlan{
			Settings: []ContendedSetting{
				{2, results.AfterNext},
				{8, results.AfterNext},
				{64, results.AfterNext},
				{256, results.AfterNext},
				{64, results.AtOnce},
			},
			Hold: time.Millisecond, Rounds: 2,
			Window: Window{For: 400 * time.Millisecond, Least: 20, AtMost: 1300 * time.Millisecond},
		},
		Faults: FaultsPlan{Trials: 2, Lease: 2 * time.Second, Limit: 8 * time.Second, AtATime: 64},
		Network: NetworkPlan{
			Delay:       500 * time.Microsecond,
			Uncontended: TurnsPlan{Rounds: 8, Calls: 30},
			HotRows: HotRowsPlan{
				Processes: 4, Callers: []int{16}, Connections: 16, Rounds: 2, For: time.Second,
			},
		},
		Crowds: CrowdsPlan{
			Callers: []int{9, 50, 200, 500}, Connections: 10, Hold: 2 * time.Millisecond, Rounds: 1,
			Window: Window{For: 600 * time.Millisecond, Least: 3, AtMost: 4 * time.Second},
		},
		HotRows: HotRowsPlan{
			Processes: 1, Callers: []int{1, 256}, Connections: 64, Rounds: 2, For: 500 * time.Millisecond,
		},
	}
}

// Settings describe the plan in the report.
func (p Plan) Settings() []results.Setting {
	return []results.Setting{
		{Name: "in turns", Value: fmt.Sprintf("%d rounds on new connections, %d calls of each in a round",
			p.Turns.Rounds, p.Turns.Calls)},
		{Name: "uncontended", Value: fmt.Sprintf("the same, all contestants of a server: %d rounds of %d calls",
			p.Uncontended.Rounds, p.Uncontended.Calls)},
		{Name: "growth", Value: fmt.Sprintf("the same: %d rounds of %d calls", p.Growth.Rounds, p.Growth.Calls)},
		{Name: "contended", Value: fmt.Sprintf("contenders in up to %d processes, holds of %v: %d × %v, up to %v "+
			"until %d acquisitions", processes, p.Contended.Hold, p.Contended.Rounds, p.Contended.For,
			p.Contended.AtMost, p.Contended.Least)},
		{Name: "faults", Value: fmt.Sprintf("%d trials, up to %d at a time; lease %v; a fault ends after %v",
			p.Faults.Trials, p.Faults.AtATime, p.Faults.Lease, p.Faults.Limit)},
		{Name: "network", Value: fmt.Sprintf("a proxy on this machine, which delays by %v each way: %d rounds of %d "+
			"calls; one article: %d × %v", p.Network.Delay, p.Network.Uncontended.Rounds,
			p.Network.Uncontended.Calls, p.Network.HotRows.Rounds, p.Network.HotRows.For)},
		{Name: "crowds", Value: fmt.Sprintf("one process with %d connections, holds of %v: %d × %v, up to %v until "+
			"%d entries of the free key", p.Crowds.Connections, p.Crowds.Hold, p.Crowds.Rounds, p.Crowds.For,
			p.Crowds.AtMost, p.Crowds.Least)},
		{Name: "hot rows", Value: fmt.Sprintf("one process with up to %d connections: %d × %v",
			p.HotRows.Connections, p.HotRows.Rounds, p.HotRows.For)},
		{Name: "lease outside the faults", Value: lease.String()},
	}
}
