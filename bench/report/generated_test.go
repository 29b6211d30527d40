package report

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// entrant is a contestant with made-up figures: the time of a cycle and of a hand-off, and whether
// waiters queue.
type entrant struct {
	results.Contestant
	cycle, handOff time.Duration
	queues, unsafe bool
}

// bareOf is the name of the bare row, where the floor is more than that.
func bareOf(floor string) string {
	return strings.Replace(floor, "by hand: Lock, pgx", "bare row: Lock, pgx", 1)
}

// entrants are contestants of all groups, with plausible figures.
func entrants() (all []entrant) {
	add := func(group contest.Group, server contest.Server, name, floor string, waits contest.Waiting, cycle,
		handOff time.Duration,
	) {
		all = append(all, entrant{results.Contestant{
			Name: name, Group: string(group), Server: string(server), Waits: string(waits), Floor: floor,
			Remark: "as its manual says", Leased: waits == contest.Polling, Bare: bareOf(floor),
		}, cycle, handOff, waits == contest.Queued || waits == contest.Notified, false})
	}
	const us, ms = time.Microsecond, time.Millisecond
	for _, c := range []struct {
		client string
		server contest.Server
	}{
		{"pgx", contest.PostgreSQL},
		{"database/sql on PostgreSQL", contest.PostgreSQL},
		{"MySQL", contest.MySQL},
		{"mysql.New", contest.MySQL},
		{"MariaDB", contest.MariaDB},
	} {
		client, server := c.client, c.server
		base := time.Duration(150+10*len(client)) * us
		for _, use := range []string{"Lock", "Do"} {
			add(contest.TxLock, server, "txlock "+use+", "+client, "by hand: "+use+", "+client, contest.Queued,
				base+8*us, 210*us)
			add(contest.Floor, server, "by hand: "+use+", "+client, "", contest.Queued, base, 190*us)
		}
		add(contest.TxLock, server, "txlock Rows, "+client, "", contest.Queued, base+30*us, 260*us)
	}
	for i, server := range []contest.Server{contest.PostgreSQL, contest.MySQL, contest.MariaDB} {
		for j, name := range []string{
			"unique key", "unique key with lease", "timestamp compare-and-set", "upsert in a transaction",
			"reentrant lock table",
			"CRC32 central lock", "version column",
		} {
			waits := contest.Polling
			switch name {
			case "upsert in a transaction":
				waits = contest.Queued
			case "version column":
				waits = contest.Retrying
			}
			slow := time.Duration(1+i+j) * 300 * us
			add(contest.ByHand, server, fmt.Sprintf("%s, %s", name, server), "", waits, 900*us+slow, 20*ms+10*slow)
			all[len(all)-1].unsafe = name == "timestamp compare-and-set"
		}
		add(contest.Libraries, server, fmt.Sprintf("goose table locker, %s", server), "", contest.Polling, 4*ms, 900*ms)
	}
	add(contest.Floor, contest.PostgreSQL, "bare row: Lock, pgx", "", contest.Queued, 120*us, 180*us)
	add(contest.Native, contest.PostgreSQL, "pg_advisory_lock", "", contest.Queued, 175*us, 200*us)
	add(contest.Native, contest.PostgreSQL, "pg_advisory_xact_lock", "", contest.Queued, 185*us, 200*us)
	add(contest.Native, contest.MySQL, "GET_LOCK, MySQL", "", contest.Queued, 190*us, 220*us)
	add(contest.Native, contest.MariaDB, "GET_LOCK, MariaDB", "", contest.Queued, 170*us, 220*us)
	add(contest.Libraries, contest.PostgreSQL, "pglock", "", contest.Polling, 3*ms, 450*ms)
	add(contest.Libraries, contest.PostgreSQL, "goose session locker", "", contest.Polling, 400*us, 2*time.Second)
	add(contest.OnRedis, contest.Redis, "SET NX PX by hand", "", contest.Polling, 90*us, 50*ms)
	add(contest.OnRedis, contest.Redis, "redislock", "", contest.Polling, 95*us, 45*ms)
	add(contest.OnRedis, contest.Redis, "redsync, 1 server", "", contest.Polling, 110*us, 80*ms)
	add(contest.OnRedis, contest.Redis, "redsync, 3 servers", "", contest.Polling, 260*us, 120*ms)
	add(contest.OnRedis, contest.Redis, "rueidislock", "", contest.Notified, 160*us, 400*us)
	add(contest.OnZK, contest.ZooKeeper, "go-zookeeper", "", contest.Notified, 3*ms, 5*ms)
	add(contest.OnEtcd, contest.Etcd, "etcd concurrency", "", contest.Notified, 5*ms, 7*ms)
	return all
}

// generated is a run with plausible figures.
func generated() results.Run {
	random := rand.New(rand.NewPCG(1, 2))
	vary := func(d time.Duration) time.Duration { return time.Duration(float64(d) * (0.92 + 0.16*random.Float64())) }
	run := results.Run{
		Started: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), Took: 42 * time.Minute, Mode: "full", Seed: 4711,
		Machine: results.Machine{
			CPU: "Some Processor @ 3.00 GHz", Kernel: "Linux 6.12", Go: "go1.26.0", Cores: 2, MemoryGiB: 7.8,
			LoadBefore: 0.4,
			Flush:      800 * time.Microsecond,
		},
		Settings: []results.Setting{
			{Name: "uncontended", Value: "40 rounds of 40ms for each contestant"}, {Name: "lease", Value: "30s"},
		},
		Servers: []results.Server{
			{
				Name: "PostgreSQL", Version: "18.1", Origin: "container",
				Durability: []results.Setting{{Name: "fsync", Value: "on"}},
			},
			{Name: "MySQL", Version: "9.5.0", Origin: "container", Durability: []results.Setting{
				{Name: "innodb_flush_log_at_trx_commit", Value: "1"}, {Name: "sync_binlog", Value: "1"},
			}},
			{
				Name: "Redis", Version: "8.0", Origin: "package",
				Durability: []results.Setting{{Name: "appendonly", Value: "no"}},
			},
		},
		Missing: []results.Missing{{Contestant: "GET_LOCK, Other", Reason: "the server cannot be started: no image"}},
	}
	for _, e := range entrants() {
		run.Contestants = append(run.Contestants, e.Contestant)
		u := results.Uncontended{
			Contestant: e.Name, Cycles: 4000, P50: vary(e.cycle), P99: vary(3 * e.cycle), RoundTrips: 2, Allocs: 41,
			AllocBytes: 2048,
		}
		for i := range 40 {
			u.Rounds = append(u.Rounds, float64(vary(e.cycle))*(1+float64(i%2))) // two kinds of rounds
		}
		run.Uncontended = append(run.Uncontended, u)
		if e.Floor != "" {
			run.Turns = append(run.Turns, results.Turns{
				Contestant: e.Name, With: e.Floor,
				Rounds: slices.Repeat([]float64{107}, 6), WithRounds: slices.Repeat([]float64{100}, 6),
			})
		}
		run.Contended = append(run.Contended, e.contended(vary)...)
		run.ManyKeys = append(run.ManyKeys, e.manyKeys()...)
		complaint := ""
		if e.unsafe {
			complaint = "article 7: 41 sold, but the stock has gone down by 39"
		}
		for _, articles := range []string{"one", "several"} {
			run.Orders = append(run.Orders, results.Orders{
				Contestant: e.Name, Articles: articles,
				Rounds: []results.OrdersRound{
					{
						Orders: int(3 * time.Second / (e.handOff + time.Millisecond)), Took: 3 * time.Second,
						Complaint: complaint,
					},
				},
			})
		}
		for _, fault := range results.FaultNames {
			trial := results.FaultTrial{Regained: vary(e.handOff), Limit: 10 * time.Second, Told: e.queues}
			if e.Leased && fault != results.WaiterKilled {
				trial.Regained = vary(2 * time.Second)
				if fault == results.HolderStopped {
					trial.Lost = 1
				}
			}
			if e.unsafe && fault == results.HolderKilled {
				trial.Regained = -1
			}
			run.Faults = append(run.Faults, results.Fault{
				Contestant: e.Name, Fault: fault,
				Trials: []results.FaultTrial{trial, trial},
			})
		}
	}
	run.Network = far(run)
	addCrowds(&run)
	return run
}

func (e entrant) contended(vary func(time.Duration) time.Duration) (all []results.Contended) {
	for _, rejoin := range []results.Rejoin{results.AfterNext, results.AtOnce} {
		for _, contenders := range []int{2, 8, 64} {
			for _, hold := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
				c := results.Contended{
					Contestant: e.Name, Contenders: contenders, Processes: 8, Hold: hold,
					Rejoin: rejoin,
				}
				for range 3 {
					gap := vary(e.handOff) + time.Duration(contenders)*time.Microsecond
					r := results.ContendedRound{
						Took: time.Second, Acquisitions: int(time.Second / (gap + hold)), HandOffP50: gap,
						HandOffP99:  4 * gap,
						Utilisation: float64(hold) / float64(hold+gap), ServerCPU: 100 * time.Millisecond,
						Connections: contenders,
						LongestWait: time.Duration(contenders) * (gap + hold), Jain: 1,
					}
					if !e.queues {
						r.Jain, r.Inversions, r.Displacement = 0.3+0.6/float64(1+contenders%7)+float64(gap%100)/500,
							12.5, 9
						r.LongestWait *= 3
					}
					if e.unsafe {
						r.Overlaps, r.Failed = 2, 1
					}
					if e.Waits == string(contest.Retrying) {
						r.HandOffP50, r.HandOffP99, r.Utilisation = 0, 0, 0
					}
					c.Rounds = append(c.Rounds, r)
				}
				all = append(all, c)
			}
		}
	}
	return all
}

// manyKeys has figures of txlock's Lock with three numbers of slots, and of the native locks, which
// have no slots.
func (e entrant) manyKeys() (all []results.ManyKeys) {
	slots := []int{}
	switch {
	case e.Group == string(contest.Native):
		slots = []int{0}
	case e.Group == string(contest.TxLock) && e.Name[:11] == "txlock Lock" && e.Name != "txlock Lock, mysql.New":
		slots = []int{1, 100, 65536}
	}
	for _, n := range slots {
		for _, keys := range []int{1, 10, 100, 1000, 10_000} {
			ways := float64(min(keys, 30))
			if n > 0 {
				ways = float64(min(keys, n, 25))
			}
			all = append(all, results.ManyKeys{
				Contestant: e.Name, Slots: n, Keys: keys, Contenders: 64, Hold: time.Millisecond,
				PerSecond: []float64{700 * ways, 720 * ways, 710 * ways},
			})
		}
	}
	return all
}
