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
)

// noLock lets everybody in. What the measurements say of it shows that they would find a lock that is broken.
const noLock = "no lock"

func init() {
	contest.Register(contest.Contestant{
		Name: noLock, Group: contest.ByHand, Server: contest.PostgreSQL, Waits: contest.Queued,
		Open: func(context.Context, contest.Environment) (contest.Client, error) { return everybody{}, nil },
	})
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
	ours    = "txlock Do, pgx"
	polling = "SET NX PX by hand"
)

// brief is a plan that is over soon.
func brief() measure.Plan {
	plan := measure.Short()
	plan.Seed = 1
	plan.Uncontended = measure.UncontendedPlan{Rounds: 2, Block: 5 * time.Millisecond, Least: 2}
	plan.Contended = plan.Contended[:1]
	plan.ManyKeys = measure.ManyKeysPlan{Keys: []int{1, 100}, Contenders: 8, Hold: time.Millisecond, Rounds: 1, For: 200 * time.Millisecond}
	plan.Orders.AtMost = 20 * time.Second
	return plan
}

func TestMeasurementsTellALockFromNone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	bed := testbed.Start(ctx, []contest.Server{contest.PostgreSQL, contest.Redis}, func(contest.Server) {})
	defer func() { require.NoError(t, bed.Stop()) }()
	var entrants []contest.Contestant
	for _, name := range []string{ours, polling, noLock, "txlock Lock, pgx", "txlock Lock, pgx, slots: 1", "go-zookeeper"} {
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
	t.Run("contended", func(t *testing.T) {
		require.NoError(t, lab.MeasureContended(ctx))
		round := func(name string) results.ContendedRound {
			return of(t, run.Contended, func(c results.Contended) bool { return c.Contestant == name }).Rounds[0]
		}
		require.Zero(t, round(ours).Overlaps)
		require.Zero(t, round(ours).Failed)
		require.Positive(t, round(ours).ServerCPU)
		require.GreaterOrEqual(t, round(ours).Connections, 16)
		require.Positive(t, round(noLock).Overlaps)
		require.Less(t, round(ours).HandOffP50, round(polling).HandOffP50)
		require.Greater(t, round(ours).Utilisation, round(polling).Utilisation)
		require.Greater(t, round(ours).Jain, 0.9)
	})
	t.Run("many keys", func(t *testing.T) {
		require.NoError(t, lab.MeasureManyKeys(ctx))
		perSecond := func(slots, keys int) float64 {
			return of(t, run.ManyKeys, func(m results.ManyKeys) bool { return m.Slots == slots && m.Keys == keys }).PerSecond[0]
		}
		require.Greater(t, perSecond(65536, 100), 1.5*perSecond(1, 100), "one slot is one lock")
	})
	t.Run("orders", func(t *testing.T) {
		require.NoError(t, lab.MeasureOrders(ctx))
		round := func(name string) results.OrdersRound {
			return of(t, run.Orders, func(o results.Orders) bool { return o.Contestant == name }).Rounds[0]
		}
		require.Empty(t, round(ours).Complaint)
		require.Equal(t, 4380, round(ours).Orders)
		require.Empty(t, round(polling).Complaint)
		require.NotEmpty(t, round(noLock).Complaint)
	})
	t.Run("faults", func(t *testing.T) {
		require.NoError(t, lab.MeasureFaults(ctx))
		lost := func(name, fault string) int {
			return of(t, run.Faults, func(f results.Fault) bool { return f.Contestant == name && f.Fault == fault }).Trials[0].Lost
		}
		for _, fault := range results.FaultNames {
			require.Zero(t, lost(ours, fault), fault)
		}
		require.Equal(t, 1, lost(noLock, results.HolderStopped))
		require.Equal(t, 1, lost(polling, results.HolderCutOff), "its lease ends, and nothing stops the holder's write")
	})
	for _, m := range run.Missing {
		require.Equal(t, "go-zookeeper", m.Contestant, "%+v", m)
		require.Contains(t, m.Reason, "ZooKeeper was not asked for")
	}
	require.NotEmpty(t, run.Missing)
}

// of returns the one result that is asked for.
func of[T any](t *testing.T, all []T, wanted func(T) bool) (one T) {
	t.Helper()
	index := slices.IndexFunc(all, wanted)
	require.GreaterOrEqual(t, index, 0, "it was not measured")
	return all[index]
}
