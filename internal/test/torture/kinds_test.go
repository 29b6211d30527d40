package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// share is a shared Lock of key 1.
func share(id operationID, at, token int64) *operation {
	o := lockAt(id, at, token)
	o.Verb = verbShare
	return o
}

// read is a shared Do of key 1.
func read(id operationID, at, value int64) *operation {
	o := do(id, at, value)
	o.Verb, o.Again = verbRead, []int64{value}
	return o
}

// permit is a Lock of the second semaphore.
func permit(id operationID, at int64, number int) *operation {
	o := lockAt(id, at, at)
	o.Verb, o.Permit, o.Keys = verbPermit, number, []int{permitKey(1, number), semaphoreKey(1)}
	return o
}

// once is a call for work 7.
func once(id operationID, at int64, ran bool) *operation {
	o := do(id, at, 0)
	o.Verb, o.Keys, o.Reads, o.Work, o.Ran = verbOnce, nil, nil, 7, ran
	if !ran {
		o.Granted, o.Released = 0, 0
	}
	return o
}

// worked is a history at whose end the works of those operations are there, and a marker or not.
func worked(marked bool, by []operationID, operations ...*operation) *epoch {
	e := made(operations...)
	e.after.works, e.after.marked = map[int64][]operationID{}, map[int64]bool{7: marked}
	if len(by) > 0 {
		e.after.works[7] = by
	}
	return e
}

func TestCheckersAcceptTheKindsOfLocks(t *testing.T) {
	killed := share(6, 65, 6)
	killed.Outcome, killed.Released, killed.Return, killed.Died = open, 0, 0, 70
	e := made(
		do(1, 10, 0), share(2, 21, 5), share(3, 22, 4), read(4, 23, 1), do(5, 40, 1), killed, lockAt(7, 72, 7),
		permit(11, 10, 0), permit(12, 11, 1), permit(13, 12, 2), permit(14, 22, 0))
	e.Faults = []fault{{killWorker, 6, 70e6, 71e6}}
	require.Empty(t, checked(e))

	missed, unknownEnd := once(3, 30, false), once(4, 5, true)
	missed.Outcome, missed.Expected, missed.Verb = failed, true, verbTryOnce
	unknownEnd.Outcome, unknownEnd.Ran = unknown, false
	e = worked(true, []operationID{4}, unknownEnd, once(2, 12, false), missed)
	e.Faults = []fault{{networkReset, 4, 6e6, 7e6}}
	require.Empty(t, checked(e))
	require.Empty(t, checked(worked(true, []operationID{1}, once(1, 10, true), once(2, 15, false))))
	require.Empty(t, checked(worked(false, nil, missed)))
}

// What a kill of the server took back before its COMMIT was answered may have been seen in InnoDB,
// and only then.
func TestCheckersAllowWhatInnoDBTakesBack(t *testing.T) {
	for _, test := range []struct {
		name         string
		early        bool
		kind         faultKind
		killed       int64
		mayBeMissing bool
	}{
		{"while the COMMIT was under way", true, killServer, 30e6, true},
		{"on PostgreSQL", false, killServer, 30e6, false},
		{"before it was seen", true, killServer, 11e6, false},
		{"after the COMMIT was answered", true, killServer, 60e6, false},
		{"of another kind", true, pauseServer, 30e6, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			by := once(1, 10, true)
			by.Outcome, by.Return = unknown, 50
			e := worked(false, nil, by, once(2, 12, false))
			e.seenEarly, e.Faults = test.early, []fault{{test.kind, everybody, test.killed, test.killed + 1}}
			if test.mayBeMissing {
				require.NotContains(t, checked(e), ruleOnce)
				return
			}
			require.Contains(t, checked(e), ruleOnce)
		})
	}
}

func TestCheckersFindWhatIsWrongWithTheKindsOfLocks(t *testing.T) {
	changed := read(1, 10, 0)
	changed.Again = []int64{1}
	stale := read(2, 30, 0)
	none := permit(1, 10, 2)
	none.Permit, none.Keys = 3, []int{permitKey(1, 3), semaphoreKey(1)}
	other := permit(1, 10, 1)
	other.Keys[0] = permitKey(0, 1)
	refused := once(1, 10, false)
	refused.Outcome, refused.Expected = failed, true
	early := once(2, 5, false)
	early.Return = 8
	for _, test := range []struct {
		name, rule string
		history    *epoch
	}{
		{"a writer beside a reader", ruleExclusion, made(share(1, 10, 5), lockAt(2, 14, 6))},
		{"a reader beside a writer", ruleExclusion, made(lockAt(1, 10, 5), share(2, 14, 6))},
		{"a Do beside the first of two readers", ruleExclusion, made(share(1, 10, 5), share(2, 5, 6), do(3, 16, 0))},
		{"a reader's counter that changes", ruleReaders, made(changed)},
		{"a reader that is behind", ruleCounter, made(do(1, 10, 0), stale)},
		{"a reader's token below a writer's", ruleTokens, made(lockAt(1, 10, 6), share(2, 30, 5))},
		{"a writer's token below a reader's", ruleTokens, made(share(1, 10, 6), lockAt(2, 30, 5))},
		{"a token of two readers", ruleTokens, made(share(1, 10, 6), share(2, 30, 6))},
		{"more inside than permits", rulePermits, made(
			permit(1, 10, 0), permit(2, 11, 1), permit(3, 12, 2), permit(4, 13, 0))},
		{"two with one permit", ruleExclusion, made(permit(1, 10, 1), permit(2, 14, 1))},
		{"no permit", rulePermits, made(none)},
		{"a permit of another semaphore", rulePermits, made(other)},
		{"tokens of a permit that go back", ruleTokens, func() *epoch {
			first, second := permit(1, 10, 1), permit(2, 30, 1)
			first.Token, second.Token = 6, 5
			return made(first, second)
		}()},
		{"a caller overtaken at a semaphore", ruleQueue, func() *epoch {
			waiter := permit(1, 10, 0)
			waiter.Granted, waiter.Released, waiter.Return = 1000, 1001, 1002
			return made(waiter, permit(2, 100, 1), permit(3, 200, 1), permit(4, 300, 1))
		}()},
		{"work done twice", ruleOnce, worked(true, []operationID{1, 2}, once(1, 10, true), once(2, 30, true))},
		{"work that is lost", ruleOnce, worked(false, nil, once(1, 10, true))},
		{"work that is lost, with its marker", ruleOnce, worked(true, nil, once(1, 10, true))},
		{"a marker without work", ruleOnce, worked(true, nil, refused)},
		{"work without a marker", ruleOnce, worked(false, []operationID{1}, once(1, 10, true))},
		{"done, and by nobody", ruleOnce, worked(false, nil, once(1, 10, false))},
		{"done before it was", ruleOnce, worked(true, []operationID{1}, once(1, 4, true), early)},
		{"two that ran", ruleOnce, worked(true, []operationID{1}, once(1, 10, true), once(2, 30, true))},
		{"work of a call that failed", ruleOnce, worked(true, []operationID{1}, refused)},
		{"work of nobody", ruleOnce, worked(true, []operationID{9}, once(1, 30, false))},
	} {
		t.Run(test.name, func(t *testing.T) { require.Contains(t, checked(test.history), test.rule) })
	}
}

// Readers that were told late of a loss do no harm to other readers.
func TestReadersAreLateForWritersAlone(t *testing.T) {
	history := func(second verb) *epoch {
		o, other := share(1, 10, 5), share(2, 2000, 6)
		o.Outcome, o.Released, o.Lost, o.Return = failed, 3000, 2990, 3001
		other.Verb = second
		e := made(o, other)
		e.Faults = []fault{{networkDrop, 1, 20e6, 2500e6}}
		return e
	}
	require.Empty(t, checked(history(verbShare)))
	require.Equal(t, []string{ruleBelief}, checked(history(verbLock)))
}

// Two that hold permits of one semaphore are no reason to be told of a loss.
func TestOtherPermitsTellNobody(t *testing.T) {
	o := permit(1, 10, 0)
	o.Outcome, o.Released, o.Lost, o.Return = failed, 3000, 2990, 3001
	e := made(o, permit(2, 2000, 1))
	e.Faults = []fault{{networkDrop, 1, 20e6, 2500e6}}
	require.Empty(t, checked(e))
}

func TestTokensOfReadersAreComparedWithWritersOfOtherEpochs(t *testing.T) {
	for _, test := range []struct {
		former, later verb
		wrong         bool
	}{{verbShare, verbShare, false}, {verbShare, verbLock, true}, {verbLock, verbShare, true}} {
		former, later := share(1, 10, 6), share(2, 30, 5)
		former.Verb, later.Verb = test.former, test.later
		kept := newTokens()
		require.Empty(t, kept.check(1, made(former).holds()[1]))
		require.Equal(t, test.wrong, len(kept.check(1, made(later).holds()[1])) > 0, test)
	}
}
