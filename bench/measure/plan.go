// Package measure does the measurements, one in each file, on all contestants in turns.
package measure

import (
	"fmt"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// Plan is how thoroughly to measure.
type Plan struct {
	Mode string
	Seed uint64

	Uncontended UncontendedPlan
	Turns       TurnsPlan
	Contended   []ContendedPlan
	ManyKeys    ManyKeysPlan
	Orders      OrdersPlan
	Faults      FaultsPlan
	Network     NetworkPlan
	Crowds      CrowdsPlan
	HandOffs    HandOffsPlan
	HotRows     HotRowsPlan
}

// UncontendedPlan is for the times of one client's cycles.
type UncontendedPlan struct {
	Rounds int
	Block  time.Duration // of each contestant in each round
	Least  int           // smallest number of cycles in a block
	WarmUp time.Duration // of each contestant, before the first round
}

// TurnsPlan is for two clients that call in turns.
type TurnsPlan struct {
	Rounds int
	Calls  int // of each in each round
}

// ContendedPlan is combinations of contenders and hold times.
type ContendedPlan struct {
	Rejoin     results.Rejoin
	Contenders []int
	Holds      []time.Duration
	Rounds     int
	// Compared is the number of rounds of those that take part in contest.HandOff.
	Compared int
	Window
}

// Window is the length of a run. It ends after For if the lock was entered at least Least times,
// and after AtMost in any case.
type Window struct {
	For    time.Duration
	Least  int64
	AtMost time.Duration
}

// ManyKeysPlan is the load over several keys.
type ManyKeysPlan struct {
	Keys       []int
	Contenders int
	Hold       time.Duration
	Rounds     int
	For        time.Duration
}

// OrdersPlan is for the replay of orders.
type OrdersPlan struct {
	Articles []string
	Rounds   int
	AtMost   time.Duration
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
	Uncontended UncontendedPlan
	Contended   []ContendedPlan
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

// HandOffsPlan is for goroutines that lock and unlock in one process.
type HandOffsPlan struct {
	Goroutines, Rounds int
	For                time.Duration
}

// HotRowsPlan is for the sales of one article. Callers and Connections are those of one process.
type HotRowsPlan struct {
	Processes   int
	Callers     []int
	Connections int
	Rounds      int
	For         time.Duration
}

// lease is the life of locks where nothing should break: long enough for a noisy machine, and
// pglock's default.
const lease = 20 * time.Second

// processes is the number of processes of contenders.
const processes = 8

// Short is for every day: all contestants in less than six minutes.
func Short() Plan {
	window := Window{For: 300 * time.Millisecond, Least: 10, AtMost: 900 * time.Millisecond}
	return Plan{
		Mode:        "short",
		Uncontended: UncontendedPlan{Rounds: 8, Block: 20 * time.Millisecond, Least: 3, WarmUp: 50 * time.Millisecond},
		Turns:       TurnsPlan{Rounds: 6, Calls: 60},
		Contended: []ContendedPlan{{
			Rejoin: results.AfterNext, Contenders: []int{16}, Holds: []time.Duration{time.Millisecond}, Rounds: 1,
			Window: window,
		}, {
			Rejoin: results.AtOnce, Contenders: []int{16}, Holds: []time.Duration{time.Millisecond}, Rounds: 1,
			Window: window,
		}},
		ManyKeys: ManyKeysPlan{
			Keys: []int{1, 10_000}, Contenders: 64, Hold: time.Millisecond, Rounds: 1,
			For: 300 * time.Millisecond,
		},
		Orders: OrdersPlan{Articles: []string{AllOrders}, Rounds: 1, AtMost: 600 * time.Millisecond},
		Faults: FaultsPlan{Trials: 1, Lease: 2 * time.Second, Limit: 7 * time.Second, AtATime: 64},
		Network: NetworkPlan{
			Delay:       500 * time.Microsecond,
			Uncontended: UncontendedPlan{Rounds: 1, Block: 10 * time.Millisecond, Least: 3},
			HotRows: HotRowsPlan{
				Processes: 4, Callers: []int{16}, Connections: 16, Rounds: 1, For: 300 * time.Millisecond,
			},
		},
		Crowds: CrowdsPlan{
			Callers: []int{500}, Connections: 10, Hold: 2 * time.Millisecond, Rounds: 1,
			Window: Window{For: 400 * time.Millisecond, Least: 2, AtMost: 1200 * time.Millisecond},
		},
		HandOffs: HandOffsPlan{Goroutines: 64, Rounds: 1, For: 200 * time.Millisecond},
		HotRows: HotRowsPlan{
			Processes: 1, Callers: []int{256}, Connections: 64, Rounds: 1, For: 300 * time.Millisecond,
		},
	}
}

// Full is for publishing.
func Full() Plan {
	window := Window{For: 400 * time.Millisecond, Least: 20, AtMost: 1300 * time.Millisecond}
	return Plan{
		Mode: "full",
		Uncontended: UncontendedPlan{
			Rounds: 32, Block: 30 * time.Millisecond, Least: 5,
			WarmUp: 150 * time.Millisecond,
		},
		Turns: TurnsPlan{Rounds: 16, Calls: 200},
		Contended: []ContendedPlan{{
			Rejoin: results.AfterNext, Contenders: []int{8, 64}, Holds: []time.Duration{time.Millisecond}, Rounds: 1,
			Compared: 6, Window: window,
		}, {
			Rejoin: results.AfterNext, Contenders: []int{2}, Holds: []time.Duration{time.Millisecond}, Rounds: 1,
			Window: window,
		}, {
			Rejoin: results.AtOnce, Contenders: []int{64}, Holds: []time.Duration{time.Millisecond}, Rounds: 1,
			Window: window,
		}},
		ManyKeys: ManyKeysPlan{
			Keys: []int{1, 10, 100, 10_000}, Contenders: 64, Hold: time.Millisecond, Rounds: 1,
			For: 600 * time.Millisecond,
		},
		Orders: OrdersPlan{
			Articles: []string{OneArticle, SeveralArticles}, Rounds: 1, AtMost: 900 * time.Millisecond,
		},
		Faults: FaultsPlan{Trials: 2, Lease: 2 * time.Second, Limit: 8 * time.Second, AtATime: 64},
		Network: NetworkPlan{
			Delay:       500 * time.Microsecond,
			Uncontended: UncontendedPlan{Rounds: 8, Block: 15 * time.Millisecond, Least: 3},
			Contended: []ContendedPlan{{
				Rejoin: results.AfterNext, Contenders: []int{64}, Holds: []time.Duration{time.Millisecond}, Rounds: 1,
				Window: window,
			}},
			HotRows: HotRowsPlan{
				Processes: 4, Callers: []int{16}, Connections: 16, Rounds: 2, For: time.Second,
			},
		},
		Crowds: CrowdsPlan{
			Callers: []int{9, 50, 200, 500}, Connections: 10, Hold: 2 * time.Millisecond, Rounds: 1,
			Window: Window{For: 600 * time.Millisecond, Least: 3, AtMost: 4 * time.Second},
		},
		HandOffs: HandOffsPlan{Goroutines: 64, Rounds: 2, For: 300 * time.Millisecond},
		HotRows: HotRowsPlan{
			Processes: 1, Callers: []int{1, 256}, Connections: 64, Rounds: 2, For: 500 * time.Millisecond,
		},
	}
}

// Settings describe the plan in the report.
func (p Plan) Settings() []results.Setting {
	var contended string
	for _, c := range p.Contended {
		contended += fmt.Sprintf("%v contenders in up to %d processes, holds %v, asking again %s: %d × %v, up to %v "+
			"until %d acquisitions; ",
			c.Contenders, processes, c.Holds, c.Rejoin, c.Rounds, c.For, c.AtMost, c.Least)
	}
	return []results.Setting{
		{Name: "uncontended", Value: fmt.Sprintf("%d rounds of %v for each contestant, in a new random order and on "+
			"new connections each round",
			p.Uncontended.Rounds, p.Uncontended.Block)},
		{Name: "contended", Value: contended},
		{Name: "many keys", Value: fmt.Sprintf("%d contenders, %v keys by Zipf's law, holds %v: %d × %v",
			p.ManyKeys.Contenders, p.ManyKeys.Keys, p.ManyKeys.Hold, p.ManyKeys.Rounds, p.ManyKeys.For)},
		{Name: "orders", Value: fmt.Sprintf("%d processes with %d workers, %d × up to %v",
			shopProcesses, shopWorkers, p.Orders.Rounds, p.Orders.AtMost)},
		{Name: "faults", Value: fmt.Sprintf("%d trials, up to %d at a time; lease %v; a fault ends after %v",
			p.Faults.Trials, p.Faults.AtATime,
			p.Faults.Lease, p.Faults.Limit)},
		{Name: "network", Value: fmt.Sprintf("%v each way, by a proxy on this machine: %d rounds uncontended, on new "+
			"connections each; one article: %d processes with %v callers each, %d × %v", p.Network.Delay,
			p.Network.Uncontended.Rounds, p.Network.HotRows.Processes, p.Network.HotRows.Callers,
			p.Network.HotRows.Rounds, p.Network.HotRows.For)},
		{Name: "crowds", Value: fmt.Sprintf("%v callers of one key and one of a free key, in one process with %d "+
			"connections, holds %v: %d × %v, up to %v until %d entries of the free key", p.Crowds.Callers,
			p.Crowds.Connections, p.Crowds.Hold, p.Crowds.Rounds, p.Crowds.For, p.Crowds.AtMost, p.Crowds.Least)},
		{Name: "hand-offs", Value: fmt.Sprintf("%d goroutines of one process, with a connection for each: %d × %v",
			p.HandOffs.Goroutines, p.HandOffs.Rounds, p.HandOffs.For)},
		{Name: "hot rows", Value: fmt.Sprintf("%v callers in one process with up to %d connections: %d × %v",
			p.HotRows.Callers, p.HotRows.Connections, p.HotRows.Rounds, p.HotRows.For)},
		{Name: "lease outside the faults", Value: lease.String()},
		{Name: "locks by hand that poll", Value: "every " + contest.PollInterval.String()},
	}
}
