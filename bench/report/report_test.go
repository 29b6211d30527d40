package report

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

const (
	lock     = "txlock Lock, postgres.Open"
	noQueue  = lock + ", no queue"
	combine  = "txlock Combine, postgres.Open"
	hand     = "by hand: Lock, pgx.Batch"
	sale     = "transaction by hand, PostgreSQL"
	polling  = "a | lock\nthat polls"
	us, ms   = time.Microsecond, time.Millisecond
	distance = 500 * us
)

// generated is a run with made-up figures.
func generated() results.Run {
	run := results.Run{
		Started: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), Took: 42 * time.Minute, Mode: "full",
		Machine:  results.Machine{CPU: "Some Processor", Kernel: "Linux 6.12", Go: "go1.26.0", Cores: 2},
		Settings: []results.Setting{{Name: "crowds", Value: "some rounds"}},
		Servers: []results.Server{{
			Name: "PostgreSQL", Version: "18.1", Origin: "container",
			Durability: []results.Setting{{Name: "fsync", Value: "on"}},
		}},
		Missing: []results.Missing{{Contestant: "GET_LOCK, Other", Reason: "the server cannot be started: no image"}},
		Network: results.Network{Delay: distance},
	}
	for i, name := range []string{lock, noQueue, combine, hand, sale, polling} {
		run.Contestants = append(run.Contestants, results.Contestant{
			Name: name, Server: string(contest.PostgreSQL), Waits: "polls",
			Remark: "a remark", ByHand: map[string]string{lock: hand}[name],
		})
		slower := time.Duration(i + 1)
		free := results.Uncontended{Contestant: name, P50: 100 * us * slower, P99: 300 * us * slower, RoundTrips: 2}
		free.Rounds = map[string][]float64{lock: {110e3, 120e3, 130e3}, hand: {100e3, 100e3, 100e3}}[name]
		run.Uncontended = append(run.Uncontended, free)
		free.P50 += 2 * ms
		run.Network.Uncontended = append(run.Network.Uncontended, free)
		for _, contenders := range []int{2, 64} {
			run.Contended = append(run.Contended, results.Contended{
				Contestant: name, Contenders: contenders, Rejoin: results.AfterNext, Rounds: []results.ContendedRound{{
					Took: time.Second, Acquisitions: 500, HandOffP50: 200 * us * slower, HandOffP99: ms * slower,
					HandOffs: 500, Utilisation: 0.8, Jain: 0.99,
				}},
			})
		}
		run.Crowds = append(run.Crowds, results.Crowd{Contestant: name, Callers: 500, Rounds: []results.CrowdRound{
			{Took: time.Second, Hot: 300, FreeP50: 170 * us * slower, FreeP99: ms * slower, Busy: 3},
		}})
		sold := results.HotRow{Contestant: name, Callers: 256, Rounds: []results.HotRowRound{
			{Took: time.Second, Sold: 40_000 / (i + 1), P50: ms, P99: 2 * ms},
		}}
		run.HotRows, run.Network.HotRows = append(run.HotRows, sold), append(run.Network.HotRows, sold)
		for _, fault := range results.FaultNames {
			run.Faults = append(run.Faults, results.Fault{Contestant: name, Fault: fault, Trials: []results.FaultTrial{
				{Regained: ms * slower, Limit: 10 * time.Second},
			}})
		}
	}
	last := len(run.Faults) - 1
	run.Faults[last].Trials[0] = results.FaultTrial{Regained: -1, Limit: 10 * time.Second, Lost: 2, Told: true}
	run.HotRows[5].Rounds[0].Complaint = "1002 sales, but 999 pieces are gone"
	return run
}

// written is what a report writes.
func written(t *testing.T, run results.Run) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.md")
	require.NoError(t, New(run).Write(path))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, wrong := range []string{"NaN", "Inf", "%!", "<no value>"} {
		require.NotContains(t, string(content), wrong)
	}
	return string(content)
}

func TestReportHasAll(t *testing.T) {
	t.Parallel()
	page := written(t, generated())
	for _, text := range []string{
		lock, noQueue, combine, hand, sale, `a \| lock that polls`, "Some Processor", "fsync = on",
		"some rounds", "the server cannot be started: no image",
		"1.20 (1.10–1.30)", "not within 10.0 s, **2 lost**, holder told",
		"**1002 sales, but 999 pieces are gone**", "1ms away", "hand-off p50, 64 contenders", "5.00 ×",
	} {
		require.Contains(t, page, text)
	}
}

func TestWhatWasNotMeasuredIsSaid(t *testing.T) {
	t.Parallel()
	require.Contains(t, written(t, results.Run{}), "Not measured in this run.")
}

func TestAHandOffThatTheEndCutOffIsALeast(t *testing.T) {
	t.Parallel()
	s := sumUpContended(results.Contended{Rounds: []results.ContendedRound{
		{HandOffP50: 490 * ms, HandOffs: 1, Cut: 1, Took: time.Second},
	}})
	require.Equal(t, "> 490 ms", s.handOff(s.p50))
	require.Equal(t, "> 2.00 s", crowd{cut: true}.free(2*time.Second))
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "–", 7: "7.00 ns", 46_300: "46.3 µs", 999_499: "999 µs", 999_500: "1.00 ms",
		1234 * time.Second: "1\u202f234 s",
	} {
		require.Equal(t, want, duration(d))
	}
	require.Equal(t, "143\u202f440", number(143440))
	require.Equal(t, "8.1 %", share(0.081))
	require.Equal(t, "71 %", share(0.71))
}
