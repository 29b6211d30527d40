package txlock_test

import (
	"database/sql"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock/internal/test/guarantees"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// guarantee is a promise in a sentence, and the test that shows it for each transaction type.
type guarantee struct {
	says string
	pgx  func(*testing.T, *testbed.Engine, testbed.Client[pgx.Tx])
	sql  func(*testing.T, *testbed.Engine, testbed.Client[*sql.Tx])
}

// sideBySide are the guarantees that are shown at the same time, on all lines. The comment in front
// of a group is its name, and the tests elsewhere that show it too. docs/guarantees.md names each.
var sideBySide = []guarantee{
	// One holder, and TestForeignClients, TestForeignClientsSeeEachOthersWork
	{"at most one session holds a key", guarantees.OneHolder[pgx.Tx], guarantees.OneHolder[*sql.Tx]},
	{"no update is lost under Do", guarantees.NoLostUpdate[pgx.Tx], guarantees.NoLostUpdate[*sql.Tx]},
	{"a try misses what is held and takes what is free", guarantees.Tries[pgx.Tx], guarantees.Tries[*sql.Tx]},
	{
		"of several tries of one key at once exactly one wins",
		guarantees.OneTryWins[pgx.Tx], guarantees.OneTryWins[*sql.Tx],
	},
	{
		"rows of the caller's own table are locked, and no others",
		guarantees.OwnRows[pgx.Tx], guarantees.OwnRows[*sql.Tx],
	},
	{"keys of any bytes and any length work", guarantees.StrangeKeys[pgx.Tx], guarantees.StrangeKeys[*sql.Tx]},
	{
		"values of any type and any text name their row",
		guarantees.StrangeValues[pgx.Tx], guarantees.StrangeValues[*sql.Tx],
	},

	// Several keys
	{
		"several keys are locked together, duplicates once",
		guarantees.SeveralKeys[pgx.Tx], guarantees.SeveralKeys[*sql.Tx],
	},
	{"opposite orders of keys never deadlock", guarantees.OppositeOrders[pgx.Tx], guarantees.OppositeOrders[*sql.Tx]},
	{
		"up to 256 keys or rows are locked at once, and no others",
		guarantees.ManyKeys[pgx.Tx], guarantees.ManyKeys[*sql.Tx],
	},
	{
		"more than 256 keys or rows are an error, and nothing is sent",
		guarantees.TooManyKeys[pgx.Tx], guarantees.TooManyKeys[*sql.Tx],
	},

	// Order
	{
		"thirty waiters are served in the order in which they queued",
		guarantees.ServedInOrder[pgx.Tx], guarantees.ServedInOrder[*sql.Tx],
	},
	{"a try does not overtake a waiter", guarantees.TryBehindWaiter[pgx.Tx], guarantees.TryBehindWaiter[*sql.Tx]},

	// Waiting ends, and TestCancelWithoutKey, TestSlowCancel, TestCancelsHitNoNeighbour
	{
		"a cancelled wait ends at once and leaves the queue",
		guarantees.CancelledWait[pgx.Tx], guarantees.CancelledWait[*sql.Tx],
	},
	{
		"a deadline of the context ends the wait and not the hold",
		guarantees.DeadlineOfContext[pgx.Tx], guarantees.DeadlineOfContext[*sql.Tx],
	},
	{"Within ends the wait, for every verb", guarantees.Within[pgx.Tx], guarantees.Within[*sql.Tx]},
	{
		"a waiter that gives up does not disturb the next one",
		guarantees.MiddleWaiterLeaves[pgx.Tx], guarantees.MiddleWaiterLeaves[*sql.Tx],
	},

	// The caller's transaction
	{
		"LockTx holds until the caller's transaction ends",
		guarantees.LockTxHolds[pgx.Tx], guarantees.LockTxHolds[*sql.Tx],
	},
	{
		"the caller's transaction stays usable after a missed try, a timeout, a cancel",
		guarantees.CallersTransaction[pgx.Tx], guarantees.CallersTransaction[*sql.Tx],
	},
	{
		"the caller's settings are what they were",
		guarantees.CallersSettings[pgx.Tx], guarantees.CallersSettings[*sql.Tx],
	},
	{
		"no setting outlives a transaction of ours, however that ends",
		guarantees.SettingsEnd[pgx.Tx], guarantees.SettingsEnd[*sql.Tx],
	},
	{
		"a transaction that would read stale data is refused",
		guarantees.StaleSnapshot[pgx.Tx], guarantees.StaleSnapshot[*sql.Tx],
	},
	{
		"a transaction of the caller's that has ended is an error",
		guarantees.EndedTransaction[pgx.Tx], guarantees.EndedTransaction[*sql.Tx],
	},

	// The work dies with the lock, and TestWorkCommitsByItself, TestEndedBeforeCommit,
	// TestDeadBeforeCommit, TestCallsWhileRowsAreOpen, TestHolderStopped, TestHoldsThatEnd
	{
		"Do commits on success and rolls back on an error, a panic and Goexit",
		guarantees.DoEnds[pgx.Tx], guarantees.DoEnds[*sql.Tx],
	},
	{
		"work that ends its own transaction is not committed without the lock",
		guarantees.SelfEnded[pgx.Tx], guarantees.SelfEnded[*sql.Tx],
	},
	{
		"the key of work that is given up is free at once, though a statement of it runs at the server",
		guarantees.GivenUp[pgx.Tx], guarantees.GivenUp[*sql.Tx],
	},
	{
		"work that swallows a deadlock is not committed",
		guarantees.SwallowedDeadlock[pgx.Tx], guarantees.SwallowedDeadlock[*sql.Tx],
	},
	{
		"work that swallows a failed statement is not reported as done when it is not",
		guarantees.SwallowedError[pgx.Tx], guarantees.SwallowedError[*sql.Tx],
	},
	{
		"a connection killed in the middle is an error, from every verb",
		guarantees.KilledConnection[pgx.Tx], guarantees.KilledConnection[*sql.Tx],
	},
	{
		"a connection cut by the network is an error, and bounded in time",
		guarantees.CutConnection[pgx.Tx], guarantees.CutConnection[*sql.Tx],
	},
	{
		"a context that ends in the work prevents the commit",
		guarantees.ContextEndsInWork[pgx.Tx], guarantees.ContextEndsInWork[*sql.Tx],
	},
	{
		"a context that ends during a statement of the work is no loss, and the log has no warning",
		guarantees.HungUp[pgx.Tx], guarantees.HungUp[*sql.Tx],
	},
	{
		"a session that others were in, or that was lost before its context ended, is a loss",
		guarantees.HungUpLate[pgx.Tx], guarantees.HungUpLate[*sql.Tx],
	},
	{"Do reads what the last holder wrote", guarantees.ReadsCurrent[pgx.Tx], guarantees.ReadsCurrent[*sql.Tx]},

	// Loss and leases, and TestServerKilled, TestHolderStopped, TestStoppedWhileTheServerIsActive,
	// TestAPingGetsItsTurn
	{"there is no false alarm, and Unlock is none", guarantees.NoFalseAlarm[pgx.Tx], guarantees.NoFalseAlarm[*sql.Tx]},
	{
		"a transaction that ended behind the back of its session is a loss, by the next heartbeat",
		guarantees.RolledBack[pgx.Tx], guarantees.RolledBack[*sql.Tx],
	},
	{"the lease is kept, on both sides", guarantees.LeaseKept[pgx.Tx], guarantees.LeaseKept[*sql.Tx]},
	{"the log tells of a loss, and is silent otherwise", guarantees.Logged[pgx.Tx], guarantees.Logged[*sql.Tx]},
	{"the log tells of a Lock that was forgotten", guarantees.ForgottenLock[pgx.Tx], guarantees.ForgottenLock[*sql.Tx]},

	// Deaths: TestHolderKilled, TestServerKilled, TestFailover, TestWaiterKilled

	// Long holds: TestNothingWaitsForALock, TestHeldLocksAreRenewed, TestManyLocksAreRenewed,
	// TestManyLocksForLong, TestRenewedLeaseIsKept, TestFailedRenewalIsALoss,
	// TestCancelledRenewalIsALoss, TestCancelledRenewalsLeaveNothing, TestLockedRowTakesChildren,
	// TestInNobodysWay

	// Fencing tokens, and TestServerKilled, TestFailover
	{"tokens increase over all holders", guarantees.TokensIncrease[pgx.Tx], guarantees.TokensIncrease[*sql.Tx]},
	{"tokens increase in the order of holders", guarantees.TokensInOrder[pgx.Tx], guarantees.TokensInOrder[*sql.Tx]},
	{
		"a new run of the server is numbered once, above all before",
		guarantees.NewRun[pgx.Tx], guarantees.NewRun[*sql.Tx],
	},
	{
		"two lock tables on one pool have tokens of their own",
		guarantees.TwoFences[pgx.Tx], guarantees.TwoFences[*sql.Tx],
	},
	{
		"fencing that is not installed is ErrNotInstalled",
		guarantees.FenceMissing[pgx.Tx], guarantees.FenceMissing[*sql.Tx],
	},

	// Reentry
	{
		"reentry follows the context, counts, and ends with the last Lock",
		guarantees.Reentry[pgx.Tx], guarantees.Reentry[*sql.Tx],
	},
	{"nested locks need one connection", guarantees.OneConnection[pgx.Tx], guarantees.OneConnection[*sql.Tx]},
	{"a nested Do is a savepoint", guarantees.NestedDo[pgx.Tx], guarantees.NestedDo[*sql.Tx]},
	{
		"a Do inside a Lock is refused, and Apart is the way out",
		guarantees.DoInsideLock[pgx.Tx], guarantees.DoInsideLock[*sql.Tx],
	},
	{
		"a call beside a nested Do, or in it with the wrong context, is refused at once",
		guarantees.BesideNestedDo[pgx.Tx], guarantees.BesideNestedDo[*sql.Tx],
	},
	{
		"what a failed nested Do has locked is not believed in",
		guarantees.UndoneLocks[pgx.Tx], guarantees.UndoneLocks[*sql.Tx],
	},
	{
		"a nested Do that outlives its Do is committed if it returns nil, and only then",
		guarantees.NestedDoOutlivesDo[pgx.Tx], guarantees.NestedDoOutlivesDo[*sql.Tx],
	},
	{
		"a nested Do that cannot be undone keeps its Do from being committed",
		guarantees.NestedDoStuck[pgx.Tx], guarantees.NestedDoStuck[*sql.Tx],
	},
	{"a loss elsewhere is not the session's", guarantees.ForeignLoss[pgx.Tx], guarantees.ForeignLoss[*sql.Tx]},
	{
		"a nested wait that ends leaves the outer lock held",
		guarantees.NestedWaitEnds[pgx.Tx], guarantees.NestedWaitEnds[*sql.Tx],
	},
	{
		"a nested Do that fails undoes its own work and no other, also behind one that missed",
		guarantees.NestedAfterMissed[pgx.Tx], guarantees.NestedAfterMissed[*sql.Tx],
	},
	{
		"a nested deadlock is an error and never a silent loss",
		guarantees.NestedDeadlock[pgx.Tx], guarantees.NestedDeadlock[*sql.Tx],
	},
	{
		"goroutines that share the context of a Lock take turns, of two calls in a Do the second is an error",
		guarantees.SharedContext[pgx.Tx], guarantees.SharedContext[*sql.Tx],
	},

	// Combine, and TestOrdersOutliveTheServer
	{
		"each caller of a Combined gets its own outcome, after the commit",
		guarantees.CombinedOutcomes[pgx.Tx], guarantees.CombinedOutcomes[*sql.Tx],
	},
	{
		"a batch is what is queued when it begins, in order and up to its limit",
		guarantees.CombinedBatches[pgx.Tx], guarantees.CombinedBatches[*sql.Tx],
	},
	{
		"callers who come again at once are one batch again",
		guarantees.CombinedGathers[pgx.Tx], guarantees.CombinedGathers[*sql.Tx],
	},
	{
		"the work of a batch has the lock, and nothing of its callers' contexts",
		guarantees.CombinedContext[pgx.Tx], guarantees.CombinedContext[*sql.Tx],
	},
	{
		"an order leaves the queue with its context, and not the work",
		guarantees.CombinedLeaving[pgx.Tx], guarantees.CombinedLeaving[*sql.Tx],
	},
	{
		"any order may leave a batch that waits for its lock, and the others keep their place",
		guarantees.CombinedWaits[pgx.Tx], guarantees.CombinedWaits[*sql.Tx],
	},
	{
		"an order that makes its batch fail takes no other with it",
		guarantees.CombinedCulprit[pgx.Tx], guarantees.CombinedCulprit[*sql.Tx],
	},
	{
		"an order does not get the error of one that has left its batch",
		guarantees.CombinedCulpritLeaves[pgx.Tx], guarantees.CombinedCulpritLeaves[*sql.Tx],
	},
	{
		"a wait that fails for all of a batch is not tried again",
		guarantees.CombinedWaitFails[pgx.Tx], guarantees.CombinedWaitFails[*sql.Tx],
	},
	{
		"a batch that failed is tried again in halves, in order, and its orders may leave in between",
		guarantees.CombinedHalves[pgx.Tx], guarantees.CombinedHalves[*sql.Tx],
	},
	{
		"an order leaves also while its batch, which has failed, is put back",
		guarantees.CombinedLeavesFailure[pgx.Tx], guarantees.CombinedLeavesFailure[*sql.Tx],
	},
	{
		"results of another number than orders, and bad input of Combine, commit nothing",
		guarantees.CombinedRefuses[pgx.Tx], guarantees.CombinedRefuses[*sql.Tx],
	},
	{
		"a panic in a batch goes on at one caller, and the others are told",
		guarantees.CombinedPanics[pgx.Tx], guarantees.CombinedPanics[*sql.Tx],
	},
	{
		"a panic while a batch waits goes on at one caller, and the others are told",
		guarantees.CombinedWaitPanics[pgx.Tx], guarantees.CombinedWaitPanics[*sql.Tx],
	},
	{
		"a Tracer that panics at the end of a batch keeps nobody from its outcome",
		guarantees.CombinedEndPanics[pgx.Tx], guarantees.CombinedEndPanics[*sql.Tx],
	},
	{
		"a lost session is an error to all of its batch, without another try",
		guarantees.CombinedLost[pgx.Tx], guarantees.CombinedLost[*sql.Tx],
	},
	{
		"Close ends a batch, and refuses what is queued",
		guarantees.CombinedClosing[pgx.Tx], guarantees.CombinedClosing[*sql.Tx],
	},
	{
		"Close ends the wait of a batch at the server",
		guarantees.CombinedClosingWait[pgx.Tx], guarantees.CombinedClosingWait[*sql.Tx],
	},
	{
		"an order joins the Do in whose work it is placed, and no Lock",
		guarantees.CombinedNested[pgx.Tx], guarantees.CombinedNested[*sql.Tx],
	},
	{
		"of orders that fail at random each has its own outcome, and the books are right",
		guarantees.CombinedFailures[pgx.Tx], guarantees.CombinedFailures[*sql.Tx],
	},

	// Leaders, and TestLeaderKilled, TestLeaderStopped, TestCandidates
	{
		"one leads an election at a time, terms increase, and Leader tells who it is",
		guarantees.OneLeader[pgx.Tx], guarantees.OneLeader[*sql.Tx],
	},
	{
		"Lead ends with its work, a panic or the context, and has resigned then",
		guarantees.Resigning[pgx.Tx], guarantees.Resigning[*sql.Tx],
	},
	{"the work of a leader is an owner of its own", guarantees.LeadersWork[pgx.Tx], guarantees.LeadersWork[*sql.Tx]},
	{
		"a leader that is lost is told before the next leads, and campaigns again",
		guarantees.LostLeader[pgx.Tx], guarantees.LostLeader[*sql.Tx],
	},
	{
		"a leader whose network is silent is told within its lease, before the next leads",
		guarantees.SilentLeader[pgx.Tx], guarantees.SilentLeader[*sql.Tx],
	},
	{
		"a candidate that comes late to its term changes nothing",
		guarantees.LateRecord[pgx.Tx], guarantees.LateRecord[*sql.Tx],
	},
	{
		"a candidate that finds a later term in the record does not begin its work",
		guarantees.Overtaken[pgx.Tx], guarantees.Overtaken[*sql.Tx],
	},
	{
		"the next leads within 20 ms after a leader has resigned",
		guarantees.SoonAfterResigning[pgx.Tx], guarantees.SoonAfterResigning[*sql.Tx],
	},
	{
		"candidates wait in their process, with one session for each election",
		guarantees.CandidatesWait[pgx.Tx], guarantees.CandidatesWait[*sql.Tx],
	},
	{
		"a candidate whose pool is full lets another lead",
		guarantees.ElectionInFullPool[pgx.Tx], guarantees.ElectionInFullPool[*sql.Tx],
	},
	{"Close ends elections", guarantees.ElectionCloses[pgx.Tx], guarantees.ElectionCloses[*sql.Tx]},
	{
		"elections of different names share nothing, and identities are kept",
		guarantees.ElectionNames[pgx.Tx], guarantees.ElectionNames[*sql.Tx],
	},
	{
		"an election without its table is ErrNotInstalled, and goes on when that is there",
		guarantees.ElectionInstalled[pgx.Tx], guarantees.ElectionInstalled[*sql.Tx],
	},

	// Release, and TestUnlockBounded
	{"Unlock works on a cancelled context, once", guarantees.Unlock[pgx.Tx], guarantees.Unlock[*sql.Tx]},
	{"Close ends what is held", guarantees.Closing[pgx.Tx], guarantees.Closing[*sql.Tx]},

	// Tracing
	{
		"a tracer is told of each call once and in order",
		guarantees.TracedCalls[pgx.Tx], guarantees.TracedCalls[*sql.Tx],
	},
	{
		"a tracer is told why a lock was not granted, and of no end then",
		guarantees.TracedFailures[pgx.Tx], guarantees.TracedFailures[*sql.Tx],
	},
	{"a tracer is told how a Do ended", guarantees.TracedWork[pgx.Tx], guarantees.TracedWork[*sql.Tx]},
	{
		"a tracer is told of nested calls, and of what is released with a Do",
		guarantees.TracedNesting[pgx.Tx], guarantees.TracedNesting[*sql.Tx],
	},
	{"a tracer is told of a loss before the Unlock", guarantees.TracedLoss[pgx.Tx], guarantees.TracedLoss[*sql.Tx]},

	{
		"a tracer is told of each batch once, and of its parts",
		guarantees.CombinedTraced[pgx.Tx], guarantees.CombinedTraced[*sql.Tx],
	},

	{
		"a tracer is told of each term of a leader",
		guarantees.ElectionTraced[pgx.Tx], guarantees.ElectionTraced[*sql.Tx],
	},

	// Inspection, and TestQueued
	{
		"Inspect shows the holder and the waiters, in their order",
		guarantees.InspectShows[pgx.Tx], guarantees.InspectShows[*sql.Tx],
	},
	{
		"Inspect shows joined keys, and nothing that was released",
		guarantees.InspectNested[pgx.Tx], guarantees.InspectNested[*sql.Tx],
	},
	{
		"Inspect shows locks in callers' transactions, and rows of their tables",
		guarantees.InspectTx[pgx.Tx], guarantees.InspectTx[*sql.Tx],
	},
	{"Break ends the holder that was shown, and no other", guarantees.Breaks[pgx.Tx], guarantees.Breaks[*sql.Tx]},
	{
		"Inspect and Break refuse what makes no sense",
		guarantees.InspectRefuses[pgx.Tx], guarantees.InspectRefuses[*sql.Tx],
	},

	// Pools, and TestTracerPanics, TestAmongCrowds, TestQueued
	{
		"a nested wait ends without a loss, however far away the server is",
		guarantees.NestedWaitFarAway[pgx.Tx], guarantees.NestedWaitFarAway[*sql.Tx],
	},
	{
		"a limit on a wait costs no transaction, however far away the server is",
		guarantees.LimitFarAway[pgx.Tx], guarantees.LimitFarAway[*sql.Tx],
	},
	{
		"a cancelled wait costs no transaction, however far away the server is",
		guarantees.CancelledFarAway[pgx.Tx], guarantees.CancelledFarAway[*sql.Tx],
	},
	{"a full pool is an error in time", guarantees.FullPool[pgx.Tx], guarantees.FullPool[*sql.Tx]},
	{
		"a hundred callers of one key leave the pool to others",
		guarantees.QueueLeavesPool[pgx.Tx], guarantees.QueueLeavesPool[*sql.Tx],
	},
	{
		"five hundred callers of one key take few connections of a pool without a limit",
		guarantees.QueueByDefault[pgx.Tx], guarantees.QueueByDefault[*sql.Tx],
	},
	{
		"callers of one process are served in the order of their calls, without a connection",
		guarantees.QueueOrder[pgx.Tx], guarantees.QueueOrder[*sql.Tx],
	},
	{
		"waits and tries in the process end at once, and the server hears nothing of them",
		guarantees.QueuedWaitEnds[pgx.Tx], guarantees.QueuedWaitEnds[*sql.Tx],
	},
	{
		"Within counts the wait in the process and at the server",
		guarantees.WithinSpansQueue[pgx.Tx], guarantees.WithinSpansQueue[*sql.Tx],
	},
	{
		"broken sessions and panics leave nobody waiting",
		guarantees.QueueForgetsNobody[pgx.Tx], guarantees.QueueForgetsNobody[*sql.Tx],
	},
	{"Close ends the waits in the process", guarantees.QueueCloses[pgx.Tx], guarantees.QueueCloses[*sql.Tx]},
	{
		"what holds a session does not wait in the process, so the server sees every deadlock",
		guarantees.QueueSeesDeadlocks[pgx.Tx], guarantees.QueueSeesDeadlocks[*sql.Tx],
	},
	{
		"after any error the pool has its connections back, clean",
		guarantees.CleanPool[pgx.Tx], guarantees.CleanPool[*sql.Tx],
	},

	// Installation and bad input, and TestKnownUnsafe, TestNodeOfCluster, TestOtherTable
	{"ten replicas install at once", guarantees.InstallTogether[pgx.Tx], guarantees.InstallTogether[*sql.Tx]},
	{
		"Install completes a half-seeded table and refuses another number of slots",
		guarantees.InstallAgain[pgx.Tx], guarantees.InstallAgain[*sql.Tx],
	},
	{
		"a table that is missing, incomplete or of another shape is ErrNotInstalled",
		guarantees.NotInstalled[pgx.Tx], guarantees.NotInstalled[*sql.Tx],
	},
	{
		"clients that disagree on the number of slots get an error",
		guarantees.SlotsChanged[pgx.Tx], guarantees.SlotsChanged[*sql.Tx],
	},
	{"Schema is what Install does", guarantees.SchemaText[pgx.Tx], guarantees.SchemaText[*sql.Tx]},
	{
		"names in quotes and with a schema work, broken ones are errors",
		guarantees.TableNames[pgx.Tx], guarantees.TableNames[*sql.Tx],
	},
	{"bad input is an error and changes nothing", guarantees.BadInput[pgx.Tx], guarantees.BadInput[*sql.Tx]},
	{
		"a lease that cannot be kept is an error and changes nothing",
		guarantees.BadLeases[pgx.Tx], guarantees.BadLeases[*sql.Tx],
	},
	{"Check accepts this engine", guarantees.CheckAccepts[pgx.Tx], guarantees.CheckAccepts[*sql.Tx]},
	{"Ping asks for the lock table, and waits for no lock", guarantees.Pinged[pgx.Tx], guarantees.Pinged[*sql.Tx]},

	// Once, and TestOnceKilledAtCommit
	{"work is done once, whoever asks for it", guarantees.OnceEach[pgx.Tx], guarantees.OnceEach[*sql.Tx]},
	{
		"who comes while the work runs waits, and runs it if it failed",
		guarantees.OnceWaits[pgx.Tx], guarantees.OnceWaits[*sql.Tx],
	},
	{
		"work that failed, panicked or lost its session leaves no marker",
		guarantees.OnceFails[pgx.Tx], guarantees.OnceFails[*sql.Tx],
	},
	{
		"a Once that returns an error leaves no marker, also of work that sends COMMIT",
		guarantees.OnceSelfEnded[pgx.Tx], guarantees.OnceSelfEnded[*sql.Tx],
	},
	{
		"in a Do, a marker shares the fate of its work",
		guarantees.OnceNested[pgx.Tx], guarantees.OnceNested[*sql.Tx],
	},
	{
		"work is done once in each window of the database's clock",
		guarantees.OncePer[pgx.Tx], guarantees.OncePer[*sql.Tx],
	},
	{
		"of transactions that mark the same work one is first, and other keys go on",
		guarantees.OnceTx[pgx.Tx], guarantees.OnceTx[*sql.Tx],
	},
	{
		"markers are forgotten and swept, and nothing else is",
		guarantees.OnceForgets[pgx.Tx], guarantees.OnceForgets[*sql.Tx],
	},
	{
		"without its table or with bad input, Once is an error that says what to do",
		guarantees.OnceNotInstalled[pgx.Tx], guarantees.OnceNotInstalled[*sql.Tx],
	},

	// Shared, and TestSharedWritesNothing, TestSharedTableIsSpelledInTwoWays,
	// TestSharedLocksAreRenewed, TestStandbyRefusesShared, TestReadOnlyServerRefusesShared
	{
		"readers hold a lock together, a writer has it alone",
		guarantees.SharedTogether[pgx.Tx], guarantees.SharedTogether[*sql.Tx],
	},
	{
		"the work of those that share commits",
		guarantees.SharedWork[pgx.Tx], guarantees.SharedWork[*sql.Tx],
	},
	{
		"readers and writers are served in the order in which they queued",
		guarantees.SharedInOrder[pgx.Tx], guarantees.SharedInOrder[*sql.Tx],
	},
	{
		"a shared try of what the session has alone does not miss for those who wait",
		guarantees.SharedOfHeld[pgx.Tx], guarantees.SharedOfHeld[*sql.Tx],
	},
	{
		"an upgrade is refused at once, and nothing is sent",
		guarantees.Upgrade[pgx.Tx], guarantees.Upgrade[*sql.Tx],
	},
	{
		"a shared wait ends and leaves the queue",
		guarantees.SharedWaitEnds[pgx.Tx], guarantees.SharedWaitEnds[*sql.Tx],
	},
	{
		"a lost reader is told so, and the others keep the lock",
		guarantees.SharedLoss[pgx.Tx], guarantees.SharedLoss[*sql.Tx],
	},
	{
		"a nested Do that fails takes nothing from what was shared before",
		guarantees.SharedUndone[pgx.Tx], guarantees.SharedUndone[*sql.Tx],
	},
	{
		"shared locks have tokens like others",
		guarantees.SharedTokens[pgx.Tx], guarantees.SharedTokens[*sql.Tx],
	},
	{
		"Inspect shows all readers, and Break ends one of them",
		guarantees.InspectReaders[pgx.Tx], guarantees.InspectReaders[*sql.Tx],
	},

	// Semaphores, and TestLimitOnWaits
	{
		"a semaphore lets n in and never one more, whichever process they are of",
		guarantees.SemaphoreBound[pgx.Tx], guarantees.SemaphoreBound[*sql.Tx],
	},
	{
		"waiters of a semaphore are served in order, in the process and at the server",
		guarantees.SemaphoreOrder[pgx.Tx], guarantees.SemaphoreOrder[*sql.Tx],
	},
	{
		"each verb takes one permit of a semaphore, a call in a session none",
		guarantees.SemaphoreVerbs[pgx.Tx], guarantees.SemaphoreVerbs[*sql.Tx],
	},
	{
		"the death of a semaphore's holder, or of its first waiter, lets the next one go on",
		guarantees.SemaphoreDeath[pgx.Tx], guarantees.SemaphoreDeath[*sql.Tx],
	},
	{
		"waits for a permit that end at any moment leave nothing behind",
		guarantees.SemaphoreCancelled[pgx.Tx], guarantees.SemaphoreCancelled[*sql.Tx],
	},
	{
		"somebody's cancels cost those who want a permit a second at most",
		guarantees.SemaphoreKilled[pgx.Tx], guarantees.SemaphoreKilled[*sql.Tx],
	},
	{
		"many waiters of a semaphore take a connection of each process, and send little",
		guarantees.SemaphoreCosts[pgx.Tx], guarantees.SemaphoreCosts[*sql.Tx],
	},
	{
		"Inspect shows who holds the permits of a semaphore, and Break ends the one that is named",
		guarantees.SemaphoreInspected[pgx.Tx], guarantees.SemaphoreInspected[*sql.Tx],
	},

	// Exec, and TestRoundTrips
	{
		"Exec commits its statements together, and tells what each has affected",
		guarantees.ExecCommits[pgx.Tx], guarantees.ExecCommits[*sql.Tx],
	},
	{
		"Rows of a statement sells what is there and no more",
		guarantees.ExecSells[pgx.Tx], guarantees.ExecSells[*sql.Tx],
	},
	{
		"statements that the server cannot count do the same",
		guarantees.ExecStrange[pgx.Tx], guarantees.ExecStrange[*sql.Tx],
	},
	{
		"a statement of Exec that fails commits nothing, and the error says which",
		guarantees.ExecFails[pgx.Tx], guarantees.ExecFails[*sql.Tx],
	},
	{
		"an argument of Exec means what it means in the work of a Do",
		guarantees.ExecArguments[pgx.Tx], guarantees.ExecArguments[*sql.Tx],
	},
	{
		"an argument of Exec that panics costs no connection",
		guarantees.ExecPanics[pgx.Tx], guarantees.ExecPanics[*sql.Tx],
	},
	{"Into has the first row of a statement", guarantees.ExecReturns[pgx.Tx], guarantees.ExecReturns[*sql.Tx]},
	{
		"a statement behind an Into has for its argument what that was filled with",
		guarantees.ExecPassesOn[pgx.Tx], guarantees.ExecPassesOn[*sql.Tx],
	},
	{
		"Exec waits as Do does, and Within bounds the wait alone",
		guarantees.ExecWaits[pgx.Tx], guarantees.ExecWaits[*sql.Tx],
	},
	{
		"Exec in the work of a Do is part of its transaction",
		guarantees.ExecNested[pgx.Tx], guarantees.ExecNested[*sql.Tx],
	},
	{
		"an Exec that fails in the work of a Do undoes its own work and no other",
		guarantees.ExecNestedFails[pgx.Tx], guarantees.ExecNestedFails[*sql.Tx],
	},
	{
		"an Exec that ends in the work of a Do, in its wait or behind it, leaves that Do going",
		guarantees.ExecNestedEnds[pgx.Tx], guarantees.ExecNestedEnds[*sql.Tx],
	},
	{
		"what comes behind a COMMIT among the statements is not committed",
		guarantees.ExecSelfEnded[pgx.Tx], guarantees.ExecSelfEnded[*sql.Tx],
	},
	{
		"an Exec whose connection breaks in the wait does not say that nothing is committed",
		guarantees.ExecCut[pgx.Tx], guarantees.ExecCut[*sql.Tx],
	},
	{
		"an Exec that ends while a statement waits commits nothing",
		guarantees.ExecKilled[pgx.Tx], guarantees.ExecKilled[*sql.Tx],
	},

	// Claims, and TestClaimKilledAtCommit, TestManyClaims, TestClaimTrips
	{"a claim has one holder, without a connection", guarantees.ClaimHeld[pgx.Tx], guarantees.ClaimHeld[*sql.Tx]},
	{
		"the text of a claim is good for that claim alone",
		guarantees.ClaimGuessed[pgx.Tx], guarantees.ClaimGuessed[*sql.Tx],
	},
	{"what is no claim is refused", guarantees.ClaimRefused[pgx.Tx], guarantees.ClaimRefused[*sql.Tx]},
	{
		"work under a claim commits only if that was held, and keeps it",
		guarantees.ClaimWork[pgx.Tx], guarantees.ClaimWork[*sql.Tx],
	},
	{"a claim in the work of a Do is part of it", guarantees.ClaimNested[pgx.Tx], guarantees.ClaimNested[*sql.Tx]},
	{"who has a claim takes it again", guarantees.ClaimOwn[pgx.Tx], guarantees.ClaimOwn[*sql.Tx]},
	{"Inspect shows claims, and Break ends them", guarantees.ClaimShown[pgx.Tx], guarantees.ClaimShown[*sql.Tx]},
	{"who waits for a claim takes no connection", guarantees.ClaimWaits[pgx.Tx], guarantees.ClaimWaits[*sql.Tx]},
	{"of many who try to take a claim one does", guarantees.ClaimRaced[pgx.Tx], guarantees.ClaimRaced[*sql.Tx]},
	{"who waits for late claims keeps nobody waiting", guarantees.ClaimsLate[pgx.Tx], guarantees.ClaimsLate[*sql.Tx]},
	{"Within bounds all of a claim's call", guarantees.ClaimsBounded[pgx.Tx], guarantees.ClaimsBounded[*sql.Tx]},
	{"many wait for a claim with few connections", guarantees.ClaimsMany[pgx.Tx], guarantees.ClaimsMany[*sql.Tx]},
	{"Sweep deletes claims that ended", guarantees.ClaimsSwept[pgx.Tx], guarantees.ClaimsSwept[*sql.Tx]},

	// Retry, and TestDeadlocksAreTriedAgain
	{
		"a deadlock is tried again, and each effect comes once",
		guarantees.DeadlockRetried[pgx.Tx], guarantees.DeadlockRetried[*sql.Tx],
	},
	{
		"work whose session was lost before COMMIT is tried again",
		guarantees.LossRetried[pgx.Tx], guarantees.LossRetried[*sql.Tx],
	},
	{
		"a Once and a batch are tried again as a whole",
		guarantees.OnceRetried[pgx.Tx], guarantees.OnceRetried[*sql.Tx],
	},

	// Inspection of elections
	{
		"Inspect shows who leads an election and who campaigns, and Break ends the leader",
		guarantees.InspectElections[pgx.Tx], guarantees.InspectElections[*sql.Tx],
	},
}

// alone are the guarantees that are shown one after the other: neighbours would disturb an order or
// a count that is measured, and would hide a goroutine that is left behind. The last one ends the
// run of tokens of a whole server of MySQL or MariaDB.
var alone = []guarantee{
	// Order
	{
		"tight loops are served in order, and nobody starves",
		guarantees.TightLoops[pgx.Tx], guarantees.TightLoops[*sql.Tx],
	},

	// Waiting ends
	{"a cancel that races with the grant leaks nothing", guarantees.CancelRace[pgx.Tx], guarantees.CancelRace[*sql.Tx]},

	// The caller's transaction
	{
		"a cancel that races with the grant leaves the caller's transaction usable",
		guarantees.GuestCancelRace[pgx.Tx], guarantees.GuestCancelRace[*sql.Tx],
	},

	// Loss and leases
	{
		"a lost session is announced at once, to the Lock and in the work",
		guarantees.LossAnnounced[pgx.Tx], guarantees.LossAnnounced[*sql.Tx],
	},

	// Pools
	{
		"ten thousand Locks need no goroutine each",
		guarantees.FewGoroutines[pgx.Tx], guarantees.FewGoroutines[*sql.Tx],
	},

	// Reentry
	{
		"a nested Do that outlives its Do is undone",
		guarantees.NestedDoLeftBehind[pgx.Tx], guarantees.NestedDoLeftBehind[*sql.Tx],
	},
	{
		"what a failed nested Do has left behind is undone with it, and the outer Do goes on",
		guarantees.UndoneWhileJoining[pgx.Tx], guarantees.UndoneWhileJoining[*sql.Tx],
	},

	// Fencing tokens
	{
		"a run of the server whose counts are spent is followed by another",
		guarantees.SpentRun[pgx.Tx], guarantees.SpentRun[*sql.Tx],
	},
}

func TestMain(m *testing.M) { testbed.Main(m, servers.Kinds(), servers.Further()...) }

func TestGuarantees(t *testing.T) {
	lines := lines(t)
	t.Run("alone", func(t *testing.T) {
		for _, line := range lines {
			t.Run(line.name, func(t *testing.T) {
				one := alone
				if !line.together { // a goroutine that is left behind shows at the guarantee that left it
					one = slices.Concat(alone, sideBySide)
				}
				for i, g := range one {
					if tier.Pick(i%2 != line.half, false, false) {
						continue
					}
					t.Run(g.says, func(t *testing.T) {
						testbed.NoGoroutines(t)
						line.show(t, g)
					})
				}
			})
		}
	})
	t.Run("side by side", func(t *testing.T) {
		for _, line := range lines {
			t.Run(line.name, func(t *testing.T) {
				t.Parallel()
				if !line.together {
					return
				}
				for i, g := range sideBySide {
					if tier.Pick(i%2 != line.half, i%2 != line.half, false) {
						continue
					}
					t.Run(g.says, func(t *testing.T) {
						if !line.inTurn {
							t.Parallel()
						}
						line.show(t, g)
					})
				}
			})
		}
	})
}

// line is an engine and a client, and shows guarantees with them.
type line struct {
	name     string
	inTurn   bool // one guarantee after the other
	together bool // shows those of sideBySide at the same time, and not alone
	half     int  // of the guarantees that it shows, but in the full tier: 0 or 1
	show     func(*testing.T, guarantee)
}

// lines are those of the tier: in the short one PostgreSQL 18, MySQL and MariaDB, in the usual one
// what that leaves out, PostgreSQL 15 and PgBouncer. There each engine has two clients, and each
// guarantee of sideBySide is shown with one of them.
func lines(t *testing.T) (lines []line) {
	further := func(e *testbed.Engine) bool { return tier.Pick(true, e.Kind == servers.Postgres15, true) }
	testbed.Lines(
		func(e *testbed.Engine, c testbed.Client[pgx.Tx]) {
			if further(e) {
				lines = append(lines, onPgx(e, c))
			}
		},
		func(e *testbed.Engine, c testbed.Client[*sql.Tx]) {
			if further(e) {
				lines = append(lines, onSQL(e, c))
			}
		})
	if !testing.Short() {
		lines = append(lines,
			onPgx(testbed.PgBouncer(t), testbed.PgxOpened()), onSQL(testbed.PgBouncer(t), testbed.PostgresSQL[0]))
	}
	if tier.Full() {
		lines = append(lines, onPgx(testbed.Pgpool(t, 200, true), testbed.PostgresPgx[1]),
			onSQL(testbed.Pgpool(t, 200, false), testbed.PostgresSQL[0]), onGalera(t))
	}
	for i := range lines {
		lines[i].half = (i + i/2) % 2 // the first client's on one engine, the second's on the next
	}
	return lines
}

// A pooler gives a session to one client after the other. Guarantees that kill or spoil sessions
// would spoil those of their neighbours there. So each line has a pooler of its own.
func onPgx(e *testbed.Engine, c testbed.Client[pgx.Tx]) line {
	return lineOf(e, c.Name, func(t *testing.T, g guarantee) { g.pgx(t, e, c) })
}

func onSQL(e *testbed.Engine, c testbed.Client[*sql.Tx]) line {
	unseen := !e.Postgres && c.Name == testbed.MySQLSQL[0].Name
	return lineOf(e, c.Name, func(t *testing.T, g guarantee) {
		if unseen && slices.Contains(watched, g.says) {
			t.Log("go-sql-driver shows no socket, so the end of an idle connection is not seen")
			return
		}
		g.sql(t, e, c)
	})
}

// watched are the guarantees that need to see the end of an idle connection.
var watched = []string{
	"the lease is kept, on both sides",
	"the log tells of a loss, and is silent otherwise",
	"a lost session is an error to all of its batch, without another try",
	"Break ends the holder that was shown, and no other",
	"a lost reader is told so, and the others keep the lock",
	"Inspect shows all readers, and Break ends one of them",
	"Inspect shows who leads an election and who campaigns, and Break ends the leader",
	"a lost session is announced at once, to the Lock and in the work",
	"a leader that is lost is told before the next leads, and campaigns again",
	"a nested Do that outlives its Do is undone",
}

// onGalera is a line on three nodes, each fixture on the next one. It shows the guarantees that
// hold there.
func onGalera(t *testing.T) line {
	l := onSQL(testbed.Galera(t), testbed.MySQLOpened())
	l.together = true
	show := l.show
	l.show = func(t *testing.T, g guarantee) {
		for why, those := range notOnGalera {
			if slices.Contains(those, g.says) {
				t.Log(why)
				return
			}
		}
		show(t, g)
	}
	return l
}

// notOnGalera are the guarantees that do not hold on Galera, or not as their tests show them, by
// the reason.
var notOnGalera = map[string][]string{
	"what shares, and a semaphore are refused": {
		"Exec in the work of a Do is part of its transaction",
		"an Exec that fails in the work of a Do undoes its own work and no other",
		"Exec commits its statements together, and tells what each has affected",
		"Inspect shows who holds the permits of a semaphore, and Break ends the one that is named",
		"waits for a permit that end at any moment leave nothing behind",
		"many waiters of a semaphore take a connection of each process, and send little",
		"somebody's cancels cost those who want a permit a second at most",
		"each verb takes one permit of a semaphore, a call in a session none",
		"a semaphore lets n in and never one more, whichever process they are of",
		"waiters of a semaphore are served in order, in the process and at the server",
		"the death of a semaphore's holder, or of its first waiter, lets the next one go on",
		"shared locks have tokens like others",
		"Inspect shows all readers, and Break ends one of them",
		"a nested Do that fails takes nothing from what was shared before",
		"an upgrade is refused at once, and nothing is sent",
		"a shared wait ends and leaves the queue",
		"readers and writers are served in the order in which they queued",
		"a lost reader is told so, and the others keep the lock",
		"the work of those that share commits",
		"a shared try of what the session has alone does not miss for those who wait",
		"readers hold a lock together, a writer has it alone",
		"a nested Do that fails undoes its own work and no other, also behind one that missed",
		"a transaction that ended behind the back of its session is a loss, by the next heartbeat",
	},
	"rows of a caller's table are refused": {
		"no update is lost under Do",
		"of several tries of one key at once exactly one wins",
		"rows of the caller's own table are locked, and no others",
		"values of any type and any text name their row",
		"opposite orders of keys never deadlock",
		"up to 256 keys or rows are locked at once, and no others",
		"a context that ends during a statement of the work is no loss, and the log has no warning",
		"a nested wait that ends leaves the outer lock held",
		"an order that makes its batch fail takes no other with it",
		"a wait that fails for all of a batch is not tried again",
		"of orders that fail at random each has its own outcome, and the books are right",
		"a statement of Exec that fails commits nothing, and the error says which",
		"after any error the pool has its connections back, clean",
		"bad input is an error and changes nothing",
		"names in quotes and with a schema work, broken ones are errors",
		"a tracer is told how a Do ended",
	},
	"there is no order among waiters on different nodes": {
		"any order may leave a batch that waits for its lock, and the others keep their place",
	},
	"KILL QUERY, also by the end of a context, rolls the transaction back": {
		"a cancel that races with the grant leaves the caller's transaction usable",
		"the lease is kept, on both sides",
		"an Exec that ends in the work of a Do, in its wait or behind it, leaves that Do going",
	},
	"a token takes a second connection, and more trips": {
		"many wait for a claim with few connections",
		"two lock tables on one pool have tokens of their own",
	},
	"tokens are not counted in runs of a server": {
		"a new run of the server is numbered once, above all before",
		"a run of the server whose counts are spent is followed by another",
	},
	"a node shows its own sessions, and a row as a key while a session waits": {
		"Inspect shows who leads an election and who campaigns, and Break ends the leader",
		"Inspect shows locks in callers' transactions, and rows of their tables",
	},
	"a node sees what another has released some milliseconds later": {
		"Break ends the holder that was shown, and no other",
		"tokens increase over all holders",
	},
	"a row that does not exist is told before the wait for others": {
		"an order does not get the error of one that has left its batch",
	},
}

func lineOf(e *testbed.Engine, client string, show func(*testing.T, guarantee)) line {
	return line{name: e.Name + " " + client, inTurn: e.Pooled, together: e.Further || !tier.Full(), show: show}
}
