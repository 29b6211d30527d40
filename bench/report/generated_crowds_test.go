package report

import (
	"slices"
	"strings"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// far is the run's times with a network in between.
func far(run results.Run) (n results.Network) {
	n.Delay = 500 * time.Microsecond
	for _, u := range run.Uncontended {
		u.P50 += 4 * time.Millisecond
		u.P99 += 5 * time.Millisecond
		u.Rounds = slices.Clone(u.Rounds)
		for i := range u.Rounds {
			u.Rounds[i] += 4e6
		}
		n.Uncontended = append(n.Uncontended, u)
	}
	for _, c := range run.Contended {
		if c.Rejoin == results.AfterNext && c.Hold == time.Millisecond {
			n.Contended = append(n.Contended, c)
		}
	}
	return n
}

// addCrowds adds contestants that take part in the measurements of crowds, and plausible figures.
func addCrowds(run *results.Run) {
	add := func(group contest.Group, server contest.Server, name string) {
		run.Contestants = append(run.Contestants, results.Contestant{
			Name: name, Group: string(group), Server: string(server),
		})
	}
	for server, client := range map[contest.Server]string{
		contest.PostgreSQL: "pgx", contest.MySQL: "MySQL", contest.MariaDB: "MariaDB",
	} {
		add(contest.TxLock, server, "txlock Lock, "+client+", no queue")
		add(contest.TxLock, server, "txlock Combine, "+client)
		add(contest.ByHand, server, byHand(string(server)))
	}
	add(contest.InProcess, contest.PostgreSQL, "sync.Mutex")
	for _, c := range run.Contestants {
		switch {
		case strings.HasPrefix(c.Name, "txlock Lock, "), c.Name == "sync.Mutex",
			c.Group == string(contest.Native), c.Group == string(contest.OnRedis):
			for _, callers := range []int{9, 50, 500} {
				run.Crowds = append(run.Crowds, crowdOf(c, callers, 10))
			}
			run.HandOffs = append(run.HandOffs, handOffOf(c))
		case strings.HasPrefix(c.Name, "by hand: Lock, "):
			run.Crowds = append(run.Crowds, crowdOf(c, 500, 10), crowdOf(c, 64, 65))
		case strings.HasPrefix(c.Name, "txlock Combine"), strings.HasPrefix(c.Name, "txlock Do"),
			c.Group == string(contest.ByHand):
			run.HotRows = append(run.HotRows, hotRowOf(c, 1), hotRowOf(c, 256))
			run.Network.HotRows = append(run.Network.HotRows, hotRowOf(c, 16))
		}
	}
}

func crowdOf(c results.Contestant, callers, connections int) results.Crowd {
	round := results.CrowdRound{
		Took: time.Second, Hot: 400, Free: 200, FreeP50: 200 * time.Microsecond, FreeP99: 2 * time.Millisecond,
		Busy: 3, Open: 11,
	}
	if c.Group != string(contest.TxLock) || strings.HasSuffix(c.Name, ", no queue") {
		round.Free, round.FreeP50, round.FreeP99, round.Busy = 2, 1280*time.Millisecond, 2*time.Second, connections
		round.Cut = true
	}
	return results.Crowd{
		Contestant: c.Name, Callers: callers, Connections: connections, Hold: 2 * time.Millisecond,
		Rounds: []results.CrowdRound{round},
	}
}

func handOffOf(c results.Contestant) results.HandOff {
	h := results.HandOff{Contestant: c.Name, Goroutines: 64, PerSecond: []float64{9000, 10_000, 11_000}}
	return h
}

func hotRowOf(c results.Contestant, callers int) results.HotRow {
	round := results.HotRowRound{Took: time.Second, Sold: 1000, P50: time.Millisecond, P99: 3 * time.Millisecond}
	switch {
	case strings.HasPrefix(c.Name, "txlock Combine") && callers > 1:
		round.Sold = 40_000
	case strings.HasPrefix(c.Name, "timestamp"):
		round.Complaint = "1002 sales, but 999 pieces are gone"
	}
	return results.HotRow{
		Contestant: c.Name, Processes: 1, Callers: callers, Connections: min(64, callers),
		Rounds: []results.HotRowRound{round},
	}
}
