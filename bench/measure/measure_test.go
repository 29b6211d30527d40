package measure_test

import (
	"context"
	"errors"
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
	"github.com/txlock/txlock/internal/test/must"
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
		Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
			c, err := contest.Find(transaction)
			if err != nil {
				return nil, err
			}
			client, err := c.Open(ctx, env)
			return promises{client}, err
		},
	})
}

// noSale confirms sales that it rolls back.
const noSale = "no sale"

type promises struct{ contest.Client }

func (p promises) Sell(ctx context.Context, _ int64) error {
	refused := errors.New("refused")
	err := p.Hold(ctx, nil, func(context.Context, contest.Tx) error { return refused })
	if errors.Is(err, refused) {
		return nil
	}
	return err
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
	ours        = "txlock Do, postgres.Open"
	lock        = "txlock Lock, postgres.Open"
	combined    = "txlock Combine, postgres.Open"
	byHand      = "by hand: Lock, pgx.Batch"
	transaction = "transaction by hand, PostgreSQL"
	polling     = "redsync"
	absent      = "GET_LOCK, MariaDB"
)

// rounds is the number of rounds where locks are compared. The best round of each lock counts,
// because a window is so short that the machine may have no time for one of them.
const rounds = 3

// brief is a plan that takes little time.
func brief() measure.Plan {
	plan := measure.Short()
	plan.Turns = measure.TurnsPlan{Rounds: 2, Calls: 3}
	plan.Uncontended = measure.TurnsPlan{Rounds: 2, Calls: 3}
	plan.Growth = measure.GrowthPlan{
		KeysOfALock: []int{1, 100}, KeysInUse: []int{1, 10}, RoundTrips: []time.Duration{10 * time.Millisecond},
		Rounds: 1, Calls: 10,
	}
	plan.Contended.Settings = []measure.ContendedSetting{{Contenders: 16, Rejoin: results.AfterNext}}
	plan.Contended.Rounds = rounds
	// Even the shares of a queue are not equal until each of the 16 contenders has entered a few
	// times. Up to 100 of them enter, and count, before the window begins.
	plan.Contended.Least, plan.Contended.AtMost = 164, 3*time.Second
	plan.Crowds.Callers, plan.Crowds.Rounds = []int{50}, rounds
	plan.HotRows.Callers = []int{16}
	return plan
}

func TestMeasurementsTellALockFromNone(t *testing.T) {
	if !tier.Full() { // it measures for more than a minute
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	bed := testbed.Start(ctx, []contest.Server{contest.PostgreSQL, contest.Redis}, testbed.Durable)
	defer func() { require.NoError(t, bed.Stop()) }()
	var entrants []contest.Contestant
	for _, name := range []string{
		ours, lock, lock + ", no queue", combined, polling, byHand, transaction, noLock, noSale, absent,
	} {
		c := must.Get(contest.Find(name))(t)
		entrants = append(entrants, c)
	}
	var run results.Run
	lab := must.Get(measure.Setup(ctx, brief(), bed, entrants, t.TempDir(), &run))(t)
	defer lab.Close()

	t.Run("turns", func(t *testing.T) {
		require.NoError(t, lab.MeasureTurns(ctx))
		require.Len(t, run.Turns, 1)
		turns := run.Turns[0]
		require.Equal(t, lock, turns.Contestant)
		require.Equal(t, byHand, turns.With)
		require.Len(t, turns.Rounds, 2)
		require.Len(t, turns.WithRounds, 2)
		require.Positive(t, results.Ratio(turns.Rounds, turns.WithRounds).Center)
	})
	t.Run("uncontended", func(t *testing.T) {
		require.NoError(t, lab.MeasureUncontended(ctx))
		u := of(t, run.Uncontended, func(u results.Uncontended) bool { return u.Contestant == ours })
		require.InDelta(t, 2, u.RoundTrips, 0.1)
		require.GreaterOrEqual(t, u.P99, u.P50)
	})
	t.Run("growth", func(t *testing.T) {
		require.NoError(t, lab.MeasureGrowth(ctx))
		points := func(by string) []results.Point {
			return of(t, run.Growth, func(g results.Growth) bool { return g.Contestant == lock && g.By == by }).Points
		}
		require.Greater(t, points(results.KeysOfALock)[1].P50, points(results.KeysOfALock)[0].P50, "100 keys, not one")
		require.Len(t, points(results.KeysInUse), 2)
		require.Greater(t, points(results.Distance)[0].P50, 20*time.Millisecond, "two round trips")
	})
	t.Run("contended", func(t *testing.T) {
		require.NoError(t, lab.MeasureContended(ctx))
		figures := func(name string, figure func(results.ContendedRound) float64) []float64 {
			found := of(t, run.Contended, func(c results.Contended) bool { return c.Contestant == name })
			return each(t, found.Rounds, figure)
		}
		overlaps := func(r results.ContendedRound) float64 { return float64(r.Overlaps) }
		require.Zero(t, slices.Max(figures(ours, overlaps)))
		require.Positive(t, slices.Min(figures(noLock, overlaps)))
		failed := func(r results.ContendedRound) float64 { return float64(r.Failed) }
		require.Zero(t, slices.Max(figures(ours, failed)))
		handOff := func(r results.ContendedRound) float64 { return float64(r.HandOffP50) }
		require.Less(t, slices.Min(figures(ours, handOff)), slices.Min(figures(polling, handOff)))
		utilisation := func(r results.ContendedRound) float64 { return r.Utilisation }
		require.Greater(t, slices.Max(figures(ours, utilisation)), slices.Max(figures(polling, utilisation)))
		require.Greater(t, slices.Max(figures(ours, func(r results.ContendedRound) float64 { return r.Jain })), 0.9)
	})
	t.Run("faults", func(t *testing.T) {
		require.NoError(t, lab.MeasureFaults(ctx))
		lost := func(name, fault string) int {
			found := of(t, run.Faults, func(f results.Fault) bool { return f.Contestant == name && f.Fault == fault })
			return found.Trials[0].Lost
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
		figures := func(name string, figure func(results.CrowdRound) float64) []float64 {
			return each(t, of(t, run.Crowds, func(c results.Crowd) bool { return c.Contestant == name }).Rounds, figure)
		}
		const queue, none = lock, lock + ", no queue"
		overlaps := func(r results.CrowdRound) float64 { return float64(r.Overlaps) }
		require.Zero(t, slices.Max(figures(queue, overlaps)))
		require.Positive(t, slices.Min(figures(noLock, overlaps)))
		busy := func(r results.CrowdRound) float64 { return float64(r.Busy) }
		require.LessOrEqual(t, slices.Max(figures(queue, busy)), 3.0, "two of the queue, and the free key's")
		require.GreaterOrEqual(t, slices.Max(figures(none, busy)), 9.0)
		free := func(r results.CrowdRound) float64 { return float64(r.FreeP50) }
		require.Less(t, 10*slices.Min(figures(queue, free)), slices.Min(figures(none, free)))
		require.Positive(t, slices.Min(figures(queue, func(r results.CrowdRound) float64 { return float64(r.Hot) })))
	})
	t.Run("hot rows", func(t *testing.T) {
		require.NoError(t, lab.MeasureHotRows(ctx))
		round := func(name string) results.HotRowRound {
			return of(t, run.HotRows, func(h results.HotRow) bool { return h.Contestant == name }).Rounds[0]
		}
		for _, name := range []string{ours, combined, transaction} {
			require.Empty(t, round(name).Complaint)
			require.Positive(t, round(name).Sold)
		}
		require.Greater(t, round(combined).Sold, 2*round(ours).Sold)
		require.NotEmpty(t, round(noSale).Complaint)
	})
	t.Run("footprint", func(t *testing.T) {
		require.NoError(t, lab.MeasureFootprint(ctx))
		needs := func(oneKey bool) results.Footprint {
			ours := func(f results.Footprint) bool { return f.Contestant == lock && f.OneKey == oneKey }
			return of(t, run.Footprints, ours)
		}
		require.Positive(t, needs(true).Memory)
		require.Greater(t, needs(false).Memory, needs(true).Memory, "who holds has a connection, who waits has none")
		require.Positive(t, needs(false).Processor)
		require.Less(t, needs(true).Processor, 0.5, "who waits does nothing")
	})
	for _, m := range run.Missing {
		require.Equal(t, absent, m.Contestant, "%+v", m)
		require.Contains(t, m.Reason, "MariaDB was not asked for")
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

// each is a figure of each round.
func each[Round any](t *testing.T, of []Round, figure func(Round) float64) (figures []float64) {
	t.Helper()
	for _, round := range of {
		figures = append(figures, figure(round))
	}
	require.Len(t, figures, rounds)
	return figures
}
