package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// finding is a key figure with its explanation.
type finding struct{ Value, Text string }

// findings are what a reader in a hurry should know. A finding that the run did not measure is left
// out.
func (x *index) findings() (all []finding) {
	for _, f := range []func() (finding, bool){
		x.floorFinding, x.nativeFinding, x.networkFinding, x.handOffFinding, x.crowdFinding, x.handOffsFinding,
		x.hotRowFinding, x.shardingFinding, x.lossFinding, x.booksFinding,
	} {
		if found, ok := f(); ok {
			all = append(all, found)
		}
	}
	return all
}

// spread is the range of the ratios.
func spread(all []comparison) string {
	low := slices.MinFunc(all, func(a, b comparison) int { return cmp.Compare(a.Center, b.Center) }).Center
	high := slices.MaxFunc(all, func(a, b comparison) int { return cmp.Compare(a.Center, b.Center) }).Center
	if a, b := fmt.Sprintf("%.2f", low), fmt.Sprintf("%.2f", high); a != b {
		return a + " to " + b + " ×"
	}
	return fmt.Sprintf("%.2f ×", low)
}

// perServer lists the ratios of each database: "PostgreSQL 1.02 to 1.05 ×, MySQL 1.04 ×".
func (x *index) perServer(all []comparison) string {
	var parts []string
	for _, server := range contest.Servers {
		var some []comparison
		for _, c := range all {
			if x.contestants[c.contestant].Server == string(server) {
				some = append(some, c)
			}
		}
		if len(some) > 0 {
			parts = append(parts, string(server)+" "+spread(some))
		}
	}
	return strings.Join(parts, ", ")
}

func (x *index) floorFinding() (finding, bool) {
	all := x.toFloor()
	if len(all) == 0 {
		return finding{}, false
	}
	return finding{spread(all), "the time of the same promise written by hand, uncontended: " + x.perServer(all)},
		true
}

func (x *index) nativeFinding() (finding, bool) {
	all := x.toNative()
	if len(all) == 0 {
		return finding{}, false
	}
	return finding{spread(all), "the time of the database's own lock, uncontended: " + x.perServer(all)}, true
}

// handOffFinding compares txlock's slowest lock with the fastest lock that polls.
func (x *index) handOffFinding() (finding, bool) {
	main, found := x.main(results.AfterNext)
	if !found {
		return finding{}, false
	}
	var slowest, polling contended
	for _, c := range x.contended(main) {
		switch {
		case c.p50 <= 0:
		case x.group(c.contestant) == contest.TxLock && c.p50 > slowest.p50:
			slowest = c
		case x.contestants[c.contestant].Waits == string(contest.Polling) && (polling.p50 == 0 || c.p50 < polling.p50):
			polling = c
		}
	}
	if slowest.p50 == 0 || polling.p50 == 0 {
		return finding{}, false
	}
	return finding{factor(float64(polling.p50) / float64(slowest.p50)), fmt.Sprintf(
		"the hand-off of txlock at its slowest (%s, %s), for the fastest lock that polls (%s, %s); %s",
		slowest.contestant, duration(slowest.p50), polling.contestant, duration(polling.p50), main.in())}, true
}

// shardingFinding is the gain of the most slots over one slot, with the most keys, for the
// contestant with the largest gain.
func (x *index) shardingFinding() (finding, bool) {
	type cell struct {
		family string
		keys   int
	}
	one, most := make(map[cell]float64), make(map[cell]results.ManyKeys)
	for _, m := range x.ManyKeys {
		family, _, _ := strings.Cut(m.Contestant, ", slots")
		c := cell{family, m.Keys}
		if m.Slots == 1 {
			one[c] = results.Median(m.PerSecond).Center
		}
		if m.Slots > most[c].Slots {
			most[c] = m
		}
	}
	var gain float64
	var of results.ManyKeys
	for _, m := range x.ManyKeys {
		family, _, _ := strings.Cut(m.Contestant, ", slots")
		c := cell{family, m.Keys}
		if base := one[c]; base > 0 && m.Slots > 1 && m.Slots == most[c].Slots {
			if g := results.Median(m.PerSecond).Center / base; g > gain {
				gain, of = g, m
			}
		}
	}
	if gain == 0 {
		return finding{}, false
	}
	return finding{factor(gain), fmt.Sprintf("the throughput of one slot, with %s slots, %s keys and %d contenders "+
		"(%s)",
		count(of.Slots), count(of.Keys), of.Contenders, x.contestants[of.Contestant].Server)}, true
}

func (x *index) lossFinding() (finding, bool) {
	names := make(map[string]bool)
	for _, f := range x.Faults {
		names[f.Contestant] = true
	}
	if len(names) == 0 {
		return finding{}, false
	}
	losers, do, doLost := 0, 0, 0
	for name := range names {
		lost, _ := x.losses(name)
		if lost > 0 {
			losers++
		}
		if strings.HasPrefix(name, "txlock Do") {
			do++
			doLost += lost
		}
	}
	f := finding{fmt.Sprintf("%d of %d", losers, len(names)), "contestants lost updates when something broke"}
	if do > 0 {
		f.Text += fmt.Sprintf("; txlock Do lost %d", doLost)
	}
	return f, true
}

func (x *index) booksFinding() (finding, bool) {
	names := make(map[string]bool) // by name, whether the books were wrong
	for _, o := range x.Orders {
		if _, complaint := replayed(o); len(o.Rounds) > 0 {
			names[o.Contestant] = names[o.Contestant] || complaint != ""
		}
	}
	if len(names) == 0 {
		return finding{}, false
	}
	wrong := 0
	for _, w := range names {
		if w {
			wrong++
		}
	}
	return finding{
		fmt.Sprintf("%d of %d", wrong, len(names)), "contestants left wrong books behind when they replayed a shop's " +
			"orders",
	}, true
}
