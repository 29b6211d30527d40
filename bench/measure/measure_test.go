package measure_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/bench/contest"
	_ "github.com/txlock/txlock/bench/contestants"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/measure"
	"github.com/txlock/txlock/bench/results"
	"github.com/txlock/txlock/bench/testbed"
	"github.com/txlock/txlock/internal/test/tier"
)

// noLock lets everybody in. Its results show that the measurements would find a broken lock.
const noLock = "no lock"

func init() {
	contest.Register(contest.Contestant{
		Name: noLock, Group: contest.ByHand, Server: contest.PostgreSQL, Waits: contest.Queued,
		Parts: contest.Standard | contest.Crowd | contest.HotRow,
		Open:  func(context.Context, contest.Environment) (contest.Client, error) { return everybody{}, nil },
	})
	contest.Register(contest.Contestant{
		Name: noSale, Group: contest.ByHand, Server: contest.PostgreSQL, Waits: contest.Queued, Parts: contest.HotRow,
		Open: func(context.Context, contest.Environment) (contest.Client, error) { return promises{}, nil },
	})
}

// noSale confirms sales that it does not book.
const noSale = "no sale"

type promises struct{ everybody }

func (promises) Sell(context.Context, int64) error {
	time.Sleep(time.Millisecond)
	return nil
}

type everybody struct{}

func (everybody) Hold(ctx context.Context, _ []string, work contest.Work) error {
	return work(ctx, nil)
}

func (everybody) Close() error { return nil }

func TestMain(m *testing.M) {
	crew.WorkIfWorker()
	os.Exit(m.Run())
}

const (
	ours     = "txlock Do, pgx"
	combined = "txlock Combine, pgx"
	polling  = "SET NX PX by hand"
)

// rounds is the number of rounds where locks are compared. The best round of each lock counts,
// because a window is so short that the machine may have no time for one of them. Speed is compared
// in make test-full alone, which runs nothing beside.
func rounds() int { return tier.Pick(1, 1, 3) }

// brief is a plan that takes little time.
func brief() measure.Plan {
	plan := measure.Short()
	plan.Seed = 1
	plan.Uncontended = measure.UncontendedPlan{Rounds: 2, Block: 5 * time.Millisecond, Least: 2}
	plan.Turns = measure.TurnsPlan{Rounds: 2, Calls: 3}
	plan.Contended = plan.Contended[:1]
	plan.Contended[0].Rounds = rounds()
	// Even the shares of a queue are not equal until each of the 16 contenders has entered a few
	// times. Up to 100 of them enter, and count, before the window begins.
	plan.Contended[0].Least, plan.Contended[0].AtMost = 164, 3*time.Second
	plan.ManyKeys = measure.ManyKeysPlan{
		Keys: []int{1, 100}, Contenders: 8, Hold: time.Millisecond, Rounds: rounds(),
		For: 200 * time.Millisecond,
	}
	plan.Orders.AtMost = tier.Pick(2*time.Second, 2*time.Second, 5*time.Second)
	plan.Network.Contended = nil
	plan.Crowds.Callers, plan.Crowds.Rounds = []int{50}, rounds()
	plan.HotRows.Callers = []int{16}
	return plan
}

func TestMeasurementsTellALockFromNone(t *testing.T) {
	if !tier.Full() { // it measures for more than a minute
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	bed := testbed.Start(ctx, []contest.Server{contest.PostgreSQL, contest.Redis}, func(contest.Server) {})
	defer func() { require.NoError(t, bed.Stop()) }()
	var entrants []contest.Contestant
	for _, name := range []string{
		ours, polling, noLock, noSale, "txlock Lock, pgx", "txlock Lock, pgx, slots: 1",
		"txlock Lock, pgx, no queue", combined, "transaction by hand, PostgreSQL",
		"go-zookeeper", "by hand: Lock, pgx",
	} {
		if c, err := contest.Find(name); err == nil {
			entrants = append(entrants, c)
		}
	}
	var run results.Run
	lab, err := measure.Setup(ctx, brief(), bed, entrants, t.TempDir(), &run)
	require.NoError(t, err)
	defer lab.Close()

	t.Run("uncontended", func(t *testing.T) {
		require.NoError(t, lab.MeasureUncontended(ctx))
		u := of(t, run.Uncontended, func(u results.Uncontended) bool { return u.Contestant == ours })
		require.InDelta(t, 2, u.RoundTrips, 0.1)
		require.Len(t, u.Rounds, 2)
		require.GreaterOrEqual(t, u.P99, u.P50)
		require.Positive(t, u.Allocs)
	})
	t.Run("turns", func(t *testing.T) {
		require.NoError(t, lab.MeasureTurns(ctx))
		require.Len(t, run.Turns, 1)
		turns := run.Turns[0]
		require.Equal(t, "by hand: Lock, pgx", turns.With)
		require.Len(t, turns.Rounds, 2)
		require.Len(t, turns.WithRounds, 2)
		require.Positive(t, results.Ratio(turns.Rounds, turns.WithRounds).Center)
	})
	t.Run("contended", func(t *testing.T) {
		require.NoError(t, lab.MeasureContended(ctx))
		figures := func(name string, figure func(results.ContendedRound) float64) (each []float64) {
			for _, round := range of(t, run.Contended, func(
				c results.Contended,
			) bool {
				return c.Contestant == name
			}).Rounds {
				each = append(each, figure(round))
			}
			require.Len(t, each, rounds())
			return each
		}
		overlaps := func(r results.ContendedRound) float64 { return float64(r.Overlaps) }
		require.Zero(t, slices.Max(figures(ours, overlaps)))
		require.Positive(t, slices.Min(figures(noLock, overlaps)))
		require.Zero(t, slices.Max(figures(ours, func(r results.ContendedRound) float64 { return float64(r.Failed) })))
		require.GreaterOrEqual(t, slices.Min(figures(ours,
			func(r results.ContendedRound) float64 { return float64(r.Connections) })), 16.0)
		require.Positive(t, slices.Max(figures(ours, func(
			r results.ContendedRound,
		) float64 {
			return float64(r.ServerCPU)
		})))
		if !tier.Full() {
			return
		}
		handOff := func(r results.ContendedRound) float64 { return float64(r.HandOffP50) }
		require.Less(t, slices.Min(figures(ours, handOff)), slices.Min(figures(polling, handOff)))
		utilisation := func(r results.ContendedRound) float64 { return r.Utilisation }
		require.Greater(t, slices.Max(figures(ours, utilisation)), slices.Max(figures(polling, utilisation)))
		require.Greater(t, slices.Max(figures(ours, func(r results.ContendedRound) float64 { return r.Jain })), 0.9)
	})
	t.Run("many keys", func(t *testing.T) {
		require.NoError(t, lab.MeasureManyKeys(ctx))
		perSecond := func(slots, keys int) float64 {
			found := of(t, run.ManyKeys, func(m results.ManyKeys) bool {
				return m.Slots == slots &&
					m.Keys == keys
			}).PerSecond
			require.Len(t, found, rounds())
			return slices.Max(found)
		}
		require.Positive(t, perSecond(65536, 100))
		if tier.Full() {
			require.Greater(t, perSecond(65536, 100), 1.5*perSecond(1, 100), "one slot is one lock")
		}
	})
	t.Run("orders", func(t *testing.T) {
		require.NoError(t, lab.MeasureOrders(ctx))
		round := func(name string) results.OrdersRound {
			return of(t, run.Orders, func(o results.Orders) bool { return o.Contestant == name }).Rounds[0]
		}
		require.Empty(t, round(ours).Complaint)
		if r := round(ours); r.Took < brief().Orders.AtMost {
			require.Equal(t, 4380, r.Orders)
		} else { // the machine had no time for all orders
			require.Positive(t, r.Orders)
		}
		require.Empty(t, round(polling).Complaint)
		require.NotEmpty(t, round(noLock).Complaint)
	})
	t.Run("faults", func(t *testing.T) {
		require.NoError(t, lab.MeasureFaults(ctx))
		lost := func(name, fault string) int {
			return of(t, run.Faults, func(f results.Fault) bool {
				return f.Contestant == name &&
					f.Fault == fault
			}).Trials[0].Lost
		}
		for _, fault := range results.FaultNames {
			require.Zero(t, lost(ours, fault), fault)
		}
		require.Equal(t, 1, lost(noLock, results.HolderStopped))
		require.Equal(t, 1, lost(polling, results.HolderCutOff), "its lease ends, and nothing stops the holder's write")
	})
	t.Run("network", func(t *testing.T) {
		require.NoError(t, lab.MeasureNetwork(ctx))
		for _, u := range run.Network.Uncontended {
			if u.Contestant != noLock {
				require.GreaterOrEqual(t, u.P50, 2*time.Millisecond, "%s: two round trips", u.Contestant)
			}
		}
		require.NotEmpty(t, run.Network.Uncontended)
		sold := of(t, run.Network.HotRows, func(h results.HotRow) bool { return h.Contestant == combined }).Rounds[0]
		require.Empty(t, sold.Complaint, "orders of several processes have different numbers")
		require.Positive(t, sold.Sold)
	})
	t.Run("crowds", func(t *testing.T) {
		require.NoError(t, lab.MeasureCrowds(ctx))
		figures := func(name string, figure func(results.CrowdRound) float64) (each []float64) {
			for _, r := range of(t, run.Crowds, func(c results.Crowd) bool { return c.Contestant == name }).Rounds {
				each = append(each, figure(r))
			}
			require.Len(t, each, rounds())
			return each
		}
		const queue, none = "txlock Lock, pgx", "txlock Lock, pgx, no queue"
		overlaps := func(r results.CrowdRound) float64 { return float64(r.Overlaps) }
		require.Zero(t, slices.Max(figures(queue, overlaps)))
		require.Positive(t, slices.Min(figures(noLock, overlaps)))
		busy := func(r results.CrowdRound) float64 { return float64(r.Busy) }
		require.LessOrEqual(t, slices.Max(figures(queue, busy)), 3.0, "two of the queue, and the free key's")
		require.GreaterOrEqual(t, slices.Max(figures(none, busy)), 9.0)
		if free := func(r results.CrowdRound) float64 { return float64(r.FreeP50) }; tier.Full() {
			require.Less(t, 10*slices.Min(figures(queue, free)), slices.Min(figures(none, free)))
		}
		require.Positive(t, slices.Min(figures(queue, func(r results.CrowdRound) float64 { return float64(r.Hot) })))
	})
	t.Run("hand-offs", func(t *testing.T) {
		require.NoError(t, lab.MeasureHandOffs(ctx))
		perSecond := func(name string) float64 {
			h := of(t, run.HandOffs, func(h results.HandOff) bool { return h.Contestant == name })
			require.Equal(t, name == noLock, h.Overlaps > 0, name)
			return h.PerSecond[0]
		}
		require.Positive(t, perSecond(noLock))
		require.Positive(t, perSecond("txlock Lock, pgx"))
	})
	t.Run("hot rows", func(t *testing.T) {
		require.NoError(t, lab.MeasureHotRows(ctx))
		round := func(name string) results.HotRowRound {
			return of(t, run.HotRows, func(h results.HotRow) bool { return h.Contestant == name }).Rounds[0]
		}
		for _, name := range []string{ours, combined, "transaction by hand, PostgreSQL"} {
			require.Empty(t, round(name).Complaint)
			require.Positive(t, round(name).Sold)
		}
		if tier.Full() {
			require.Greater(t, round(combined).Sold, 2*round(ours).Sold)
		}
		require.NotEmpty(t, round(noSale).Complaint)
	})
	for _, m := range run.Missing {
		require.Equal(t, "go-zookeeper", m.Contestant, "%+v", m)
		require.Contains(t, m.Reason, "ZooKeeper was not asked for")
	}
	require.NotEmpty(t, run.Missing)
}

// of returns the only result that matches.
func of[T any](t *testing.T, all []T, wanted func(T) bool) (one T) {
	t.Helper()
	index := slices.IndexFunc(all, wanted)
	require.GreaterOrEqual(t, index, 0, "it was not measured")
	return all[index]
}
