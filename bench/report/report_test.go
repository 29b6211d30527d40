package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
	"github.com/txlock/txlock/internal/test/must"
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
		Machine: results.Machine{CPU: "Some Processor", Go: "go1.26.0", Cores: 2},
		Servers: []results.Server{{
			Name: "PostgreSQL", Version: "18.1", Origin: "container",
			Durability: []results.Setting{{Name: "fsync", Value: "on"}},
		}},
		Missing: []results.Missing{{Contestant: "GET_LOCK, Other", Reason: "the server cannot be started: no image"}},
		Turns: []results.Turns{{
			Contestant: lock, With: hand,
			Rounds: []float64{110e3, 120e3, 130e3}, WithRounds: []float64{100e3, 100e3, 100e3},
		}},
		Network: results.Network{Delay: distance},
	}
	for i, name := range []string{lock, noQueue, combine, hand, sale, polling} {
		group := contest.InSQL
		switch {
		case strings.HasPrefix(name, "txlock"):
			group = contest.TxLock
		case name != polling:
			group = contest.ByHand
		}
		run.Contestants = append(run.Contestants, results.Contestant{
			Name: name, Group: string(group), Server: string(contest.PostgreSQL), Waits: "polls", Remark: "a remark",
		})
		slower := time.Duration(i + 1)
		free := results.Uncontended{Contestant: name, P50: 100 * us * slower, P99: 300 * us * slower, RoundTrips: 2}
		run.Uncontended = append(run.Uncontended, free)
		free.P50 += 2 * ms
		run.Network.Uncontended = append(run.Network.Uncontended, free)
		for _, by := range results.Axes {
			run.Growth = append(run.Growth, results.Growth{Contestant: name, By: by, Points: []results.Point{
				{X: 1, P50: 100 * us * slower}, {X: 100, P50: 200 * us * slower},
			}})
		}
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
		run.Footprints = append(run.Footprints, results.Footprint{
			Contestant: name, Callers: 10_000, OneKey: true, Began: ms, Memory: 20_400, Processor: 0.012,
		})
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

// written are the files that a report writes, by their names.
func written(t *testing.T, write func(folder string) error) map[string]string {
	t.Helper()
	folder, files := t.TempDir(), make(map[string]string)
	require.NoError(t, write(folder))
	entries := must.Get(os.ReadDir(folder))(t)
	for _, entry := range entries {
		content := must.Get(os.ReadFile(filepath.Join(folder, entry.Name())))(t)
		files[entry.Name()] = string(content)
		for _, wrong := range []string{"NaN", "Inf", "%!", "<no value>"} {
			require.NotContains(t, string(content), wrong, entry.Name())
		}
	}
	return files
}

func TestReportHasAll(t *testing.T) {
	t.Parallel()
	r := New(generated())
	files := written(t, func(folder string) error { return r.Write(folder, "run") })
	for _, text := range []string{
		lock, noQueue, combine, hand, sale, `a \| lock that polls`, "Some Processor", "fsync = on",
		"the server cannot be started: no image",
		"1.20 (1.10–1.30)", "not within 10.0 s, **2 lost**, holder told",
		"**1002 sales, but 999 pieces are gone**", "1 ms away", "hand-off p50, 64 contenders", "5.00 ×",
		"| 10\u202f000 want one key | – | 20.4 kB | 1.2 % |",
		"(run-keys-in-use.svg)",
	} {
		require.Contains(t, files["run.md"], text)
	}
	require.Len(t, files, 5)
	for name, content := range files {
		if strings.HasSuffix(name, ".svg") {
			require.Contains(t, content, lock, name)
			require.Contains(t, content, "200 µs", name)
		}
	}
}

func TestPageIsWrittenByTheProgram(t *testing.T) {
	t.Parallel()
	r := New(generated())
	files := written(t, func(folder string) error { return r.Page(folder, "../results/run", "One thing has changed.") })
	page := files["benchmarks.md"]
	for _, text := range []string{
		"(../results/run.md)", "One thing has changed.", "170 µs (p50)", "it takes 340 µs",
		"`Combine` 1.67, and ", "`Lock` 1.20, `Do` –", "10\u202f000 wait for one: 20.4 kB each, 1.2 %",
		"(benchmarks-contenders.svg)", "1 July 2026",
	} {
		require.Contains(t, page, text)
	}
	require.Contains(t, files["pools.svg"], noQueue)
	require.NotContains(t, files["pools.svg"], hand)
	for _, line := range strings.Split(page, "\n") {
		if !strings.HasPrefix(line, "|") {
			require.LessOrEqual(t, len([]rune(line)), 120, line)
		}
	}
}

func TestWhatWasNotMeasuredIsSaid(t *testing.T) {
	t.Parallel()
	files := written(t, func(folder string) error { return New(results.Run{}).Write(folder, "run") })
	require.Len(t, files, 1, "no plot without a line")
	require.Contains(t, files["run.md"], "Not measured in this run.")
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
	require.Equal(t, "1.10 to 1.39", spread([]float64{1.39, 1.1, 1.2}, twoDigits))
	require.Equal(t, nothing, spread(nil, twoDigits))
}
