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
	Contended   []ContendedPlan
	ManyKeys    ManyKeysPlan
	Orders      OrdersPlan
	Faults      FaultsPlan
}

// UncontendedPlan is for the times of one client's cycles.
type UncontendedPlan struct {
	Rounds int
	Block  time.Duration // of each contestant in each round
	Least  int           // smallest number of cycles in a block
	WarmUp time.Duration // of each contestant, before the first round
}

// ContendedPlan is combinations of contenders and hold times.
type ContendedPlan struct {
	Rejoin     results.Rejoin
	Contenders []int
	Holds      []time.Duration
	Rounds     int
	// Compared is the number of rounds of txlock, its floor and the databases' own locks, which are
	// compared with one another. 0 stands for Rounds.
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

// lease is the life of locks where nothing should break: long enough for a noisy machine, and
// pglock's default.
const lease = 20 * time.Second

// processes is the number of processes of contenders.
const processes = 8

// Short is for every day: all contestants in less than five minutes.
func Short() Plan {
	return Plan{
		Mode:        "short",
		Uncontended: UncontendedPlan{Rounds: 12, Block: 25 * time.Millisecond, Least: 3, WarmUp: 50 * time.Millisecond},
		Contended: []ContendedPlan{{
			Rejoin: results.AfterNext, Contenders: []int{16}, Holds: []time.Duration{time.Millisecond}, Rounds: 1,
			Window: Window{For: 400 * time.Millisecond, Least: 10, AtMost: 1200 * time.Millisecond},
		}, {
			Rejoin: results.AtOnce, Contenders: []int{16}, Holds: []time.Duration{time.Millisecond}, Rounds: 1,
			Window: Window{For: 400 * time.Millisecond, Least: 10, AtMost: 1200 * time.Millisecond},
		}},
		ManyKeys: ManyKeysPlan{
			Keys: []int{1, 100, 10_000}, Contenders: 64, Hold: time.Millisecond, Rounds: 1,
			For: 500 * time.Millisecond,
		},
		Orders: OrdersPlan{Articles: []string{AllOrders}, Rounds: 1, AtMost: time.Second},
		Faults: FaultsPlan{Trials: 1, Lease: 2 * time.Second, Limit: 7 * time.Second, AtATime: 64},
	}
}

// Full is for publishing.
func Full() Plan {
	window := Window{For: 600 * time.Millisecond, Least: 20, AtMost: 2500 * time.Millisecond}
	return Plan{
		Mode: "full",
		Uncontended: UncontendedPlan{
			Rounds: 40, Block: 40 * time.Millisecond, Least: 5,
			WarmUp: 300 * time.Millisecond,
		},
		Contended: []ContendedPlan{{
			Rejoin: results.AfterNext, Contenders: []int{8}, Holds: []time.Duration{time.Millisecond}, Rounds: 2,
			Compared: 8, Window: window,
		}, {
			Rejoin: results.AfterNext, Contenders: []int{2, 64}, Holds: []time.Duration{time.Millisecond}, Rounds: 1,
			Window: window,
		}, {
			Rejoin: results.AfterNext, Contenders: []int{64}, Holds: []time.Duration{0, 10 * time.Millisecond},
			Rounds: 1, Window: window,
		}, {
			Rejoin: results.AtOnce, Contenders: []int{2, 64}, Holds: []time.Duration{time.Millisecond}, Rounds: 1,
			Window: window,
		}},
		ManyKeys: ManyKeysPlan{
			Keys: []int{1, 10, 100, 1000, 10_000}, Contenders: 64, Hold: time.Millisecond, Rounds: 1, For: time.Second,
		},
		Orders: OrdersPlan{Articles: []string{OneArticle, SeveralArticles}, Rounds: 1, AtMost: 2 * time.Second},
		Faults: FaultsPlan{Trials: 2, Lease: 2 * time.Second, Limit: 8 * time.Second, AtATime: 64},
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
		{Name: "lease outside the faults", Value: lease.String()},
		{Name: "locks by hand that poll", Value: "every " + contest.PollInterval.String()},
	}
}
