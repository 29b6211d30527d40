package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// The workers are processes of the test program.
func TestMain(m *testing.M) {
	workIfWorker()
	os.Exit(m.Run())
}

func tortured(t *testing.T, s settings) *result {
	t.Helper()
	var out bytes.Buffer
	s.Seed, s.Histories = rand.Int64(), histories(t)
	result, err := torture(context.Background(), s, &out)
	result.print(&out)
	t.Log(out.String())
	require.NoError(t, err)
	require.Positive(t, result.Acquisitions)
	require.Positive(t, result.Updates)
	return result
}

// histories is a folder that stays behind only if the test fails: then somebody reads them.
func histories(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "txlock-torture-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if found, err := os.ReadDir(folder); t.Failed() && err == nil && len(found) > 0 {
			t.Logf("the histories are kept in %s", folder)
			return
		}
		_ = os.RemoveAll(folder)
	})
	return folder
}

func TestTxlockKeepsItsPromises(t *testing.T) {
	for _, kind := range tier.Pick(servers.Newest(), servers.Newest(), servers.Kinds()) {
		t.Run(kind.String(), func(t *testing.T) {
			length := tier.Pick(3*time.Second, 8*time.Second, 8*time.Second)
			result := tortured(t, settings{Kind: kind, For: length})
			require.Empty(t, result.Violations)
			require.NotEmpty(t, result.Damages, "no fault took place")
		})
	}
}

// Whatever is killed, cut off or stopped, each job of a queue is done once.
func TestEachJobIsDoneOnce(t *testing.T) {
	for _, kind := range tier.Pick(servers.Newest(), servers.Newest(), servers.Kinds()) {
		t.Run(kind.String(), func(t *testing.T) {
			s := settings{Kind: kind, Jobs: tier.Pick(500, 2_000, 10_000), For: 4 * time.Second}
			result := tortured(t, s)
			require.Empty(t, result.Violations)
			require.NotEmpty(t, result.Damages, "no fault took place")
		})
	}
}

// The flaws of a handmade lock must be found. Otherwise the test above proves nothing. The run is
// repeated until all have shown.
func TestLookingFirstIsFoundOut(t *testing.T) {
	missing := map[string]bool{
		ruleCounter: true, ruleExclusion: true, ruleReaders: true, rulePermits: true, ruleOnce: true,
	}
	for runs := 0; len(missing) > 0; runs++ {
		require.Less(t, runs, 10, "not found: %v", missing)
		length := tier.Pick(3*time.Second, 6*time.Second, 6*time.Second)
		result := tortured(t, settings{Kind: servers.MariaDB, For: length, Handmade: true})
		for _, v := range result.Violations {
			delete(missing, v.Rule)
		}
	}
}

func rulesOf(violations []violation) []string {
	var rules []string
	for _, v := range violations {
		rules = append(rules, v.Rule)
	}
	return rules
}

// made is a handwritten history with times in milliseconds: two workers, no fault, a lease of a
// second.
func made(operations ...*operation) *epoch {
	e := &epoch{
		Start: 1, End: 10_000e6, lease: time.Second, workers: 2, Operations: operations,
		before: newLedger(), after: newLedger(),
	}
	for _, o := range operations {
		for _, at := range []*int64{&o.Call, &o.Granted, &o.Released, &o.Return, &o.Lost, &o.Died} {
			*at *= 1e6
		}
		for i, key := range o.Keys {
			if o.Verb == verbDo && o.Outcome == done {
				e.after.applied[application{o.ID, key}]++
				e.after.seen[application{o.ID, key}] = o.Reads[i]
				e.after.counters[key]++
			}
		}
	}
	return e
}

func do(id operationID, at, read int64) *operation {
	return &operation{
		ID: id, Process: int(id), Verb: verbDo, Keys: []int{1}, Outcome: done, Reads: []int64{read},
		Call: at, Granted: at + 1, Released: at + 9, Return: at + 10,
	}
}

func lockAt(id operationID, at, token int64) *operation {
	o := do(id, at, 0)
	o.Verb, o.Reads, o.Token = verbLock, nil, token
	return o
}

// leadAt is a term of the second election.
func leadAt(id operationID, at, term int64) *operation {
	o := lockAt(id, at, term)
	o.Verb, o.Keys = verbLead, []int{mutexes + 1}
	return o
}

// checked returns all violations that the checkers find in one epoch.
func checked(e *epoch) []string {
	t := &trial{tokens: newTokens(), result: &result{Damages: map[faultKind]*damage{}}}
	return rulesOf(t.check(e))
}

func TestCheckersAcceptWhatIsRight(t *testing.T) {
	first, second, third, fourth := do(1, 10, 0), do(2, 15, 1), lockAt(3, 20, 5), lockAt(4, 60, 6)
	second.Granted, second.Released, second.Return = 20, 22, 23
	third.Granted, third.Released, third.Return = 24, 25, 30
	require.Empty(t, checked(made(first, second, third, fourth)))
}

// Each of these histories is wrong in one way, which its checker must find.
func TestCheckersFindWhatIsWrong(t *testing.T) {
	tests := []struct {
		name, rule string
		history    func() *epoch
	}{
		{"two Locks held at once", ruleExclusion, func() *epoch {
			return made(lockAt(1, 10, 5), lockAt(2, 14, 6))
		}},
		{"two leaders at once", ruleExclusion, func() *epoch { return made(leadAt(1, 10, 5), leadAt(2, 14, 6)) }},
		{"a term that is lower than the one before", ruleTokens, func() *epoch {
			return made(leadAt(1, 10, 6), leadAt(2, 40, 5))
		}},
		{"a Do while a Lock is held", ruleExclusion, func() *epoch { return made(lockAt(1, 10, 5), do(2, 14, 0)) }},
		{"two that read the same", ruleCounter, func() *epoch { return made(do(1, 10, 0), do(2, 30, 0)) }},
		{"one that read what came later", ruleCounter, func() *epoch { return made(do(1, 10, 1), do(2, 30, 0)) }},
		{"an acknowledged update that is lost", ruleSet, func() *epoch {
			e := made(do(1, 10, 0))
			delete(e.after.applied, application{1, 1})
			e.after.counters[1] = 0
			return e
		}},
		{"a counter that lost what the set has", ruleCounter, func() *epoch {
			e := made(do(1, 10, 0))
			e.after.counters[1] = 0
			return e
		}},
		{"an update applied twice", ruleSet, func() *epoch {
			e := made(do(1, 10, 0))
			e.after.applied[application{1, 1}]++
			e.after.counters[1]++
			return e
		}},
		{"a failed update that took effect", ruleSet, func() *epoch {
			e := made(do(1, 10, 0))
			e.Operations[0].Outcome, e.Operations[0].Expected = failed, true
			return e
		}},
		{"an update on one key of two", ruleSet, func() *epoch {
			o := do(1, 10, 0)
			o.Keys, o.Reads = []int{1, 0}, []int64{0, 0}
			e := made(o)
			o.Outcome, o.Died, o.Return = open, 30e6, 0
			delete(e.after.applied, application{1, 0})
			e.after.counters[0] = 0
			return e
		}},
		{"an update that nobody called", ruleSet, func() *epoch {
			e := made()
			e.after.applied[application{7, 1}], e.after.counters[1] = 1, 1
			return e
		}},
		{"a token that goes back", ruleTokens, func() *epoch { return made(lockAt(1, 10, 6), lockAt(2, 30, 5)) }},
		{"a token given twice", ruleTokens, func() *epoch { return made(lockAt(1, 10, 6), lockAt(2, 30, 6)) }},
		{"no token", ruleTokens, func() *epoch { return made(lockAt(1, 10, 0)) }},
		{"a token below that of a holder who lost the lock", ruleTokens, func() *epoch {
			lost := lockAt(1, 10, 6)
			lost.Outcome, lost.Lost = failed, 15
			e := made(lost, lockAt(2, 30, 5))
			e.Faults = []fault{{endSession, everybody, 12e6, 13e6}}
			return e
		}},
		{"an error without a fault", ruleErrors, func() *epoch {
			o := do(1, 10, 0)
			o.Outcome, o.Error = failed, "connection reset"
			return made(o)
		}},
		{"a loss without a fault", ruleErrors, func() *epoch {
			o := lockAt(1, 10, 5)
			o.Outcome, o.Lost = failed, 15
			return made(o)
		}},
		{"a lost lock whose Unlock says nothing", ruleErrors, func() *epoch {
			o := lockAt(1, 10, 5)
			o.Lost = 15
			return made(o)
		}},
		{"an operation that never returned", ruleErrors, func() *epoch {
			o := do(1, 10, 0)
			o.Outcome, o.Return, o.Released, o.Granted = open, 0, 0, 0
			return made(o)
		}},
		{"a holder that is told too late", ruleBelief, func() *epoch {
			o := lockAt(1, 10, 5)
			o.Outcome, o.Released, o.Lost, o.Return = failed, 3000, 2990, 3001
			e := made(o, lockAt(2, 2000, 6))
			e.Faults = []fault{{networkDrop, 1, 20e6, 2500e6}}
			return e
		}},
		{"a waiter overtaken by everybody", ruleQueue, func() *epoch {
			waiter := lockAt(1, 10, 9)
			waiter.Granted, waiter.Released, waiter.Return = 1000, 1001, 1002
			return made(waiter, lockAt(2, 100, 5), lockAt(3, 200, 6), lockAt(4, 300, 7))
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { require.Contains(t, checked(test.history()), test.rule) })
	}
}

// A hold that a fault may have ended is certain only until the fault. A write with unknown outcome
// may take effect at any time.
func TestCheckersAllowWhatFaultsExplain(t *testing.T) {
	stopped := lockAt(1, 10, 5)
	stopped.Outcome, stopped.Released, stopped.Return, stopped.Error = failed, 3000, 3001, "lock lost"
	killed := lockAt(3, 2500, 7)
	killed.Outcome, killed.Released, killed.Return, killed.Died = open, 0, 0, 2600
	e := made(stopped, lockAt(2, 2000, 6), killed, lockAt(4, 2601, 8))
	e.Faults = []fault{{stopWorker, 1, 15e6, 2400e6}, {killWorker, 3, 2600e6, 2700e6}}
	require.Empty(t, checked(e))
}

// A hold that was over before it was known takes a moment at which nobody else has the lock.
func TestBrokenHoldsTakeAMoment(t *testing.T) {
	for known, wrong := range map[int64]bool{20: true, 35: false} {
		first, broken := lockAt(1, 10, 5), lockAt(2, 14, 6)
		first.Released, first.Return = 30, 31
		broken.Outcome, broken.Granted, broken.Released, broken.Return = failed, known, known+1, known+2
		e := made(first, broken)
		e.Faults = []fault{{endSession, 2, 16e6, 17e6}}
		require.Equal(t, wrong, len(e.checkMutex(1, e.holds()[1])) > 0, "known at %d", known)
	}
}

func TestRecoveryIsTheNextGrant(t *testing.T) {
	holds := made(lockAt(1, 10, 5), lockAt(2, 400, 6)).holds()
	for _, test := range []struct {
		kind faultKind
		took time.Duration
		ok   bool
	}{
		{killServer, 201 * time.Millisecond, true},
		{switchKilled, 301 * time.Millisecond, true}, // from its begin
		{killWorker, 0, false},
	} {
		took, ok := recovery(fault{test.kind, everybody, 100e6, 200e6}, holds)
		require.Equal(t, test.took, took, test.kind)
		require.Equal(t, test.ok, ok, test.kind)
	}
}
