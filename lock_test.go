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

// guarantee is a promise in a sentence, and the test that shows it with any client.
type guarantee[Tx any] struct {
	says string
	show func(*testing.T, *testbed.Engine, testbed.Client[Tx])
}

// sideBySide are the guarantees that are shown at the same time, on all lines. The comment in front
// of a group is its name, and the tests elsewhere that show it too. docs/guarantees.md names each.
func sideBySide[Tx any]() []guarantee[Tx] {
	return []guarantee[Tx]{
		// One holder, and TestForeignClients
		{"at most one session holds a key", guarantees.OneHolder[Tx]},
		{"no update is lost under Do", guarantees.NoLostUpdate[Tx]},
		{"a try misses what is held and takes what is free", guarantees.Tries[Tx]},
		{"of several tries of one key at once exactly one wins", guarantees.OneTryWins[Tx]},
		{"rows of the caller's own table are locked, and no others", guarantees.OwnRows[Tx]},
		{"keys of any bytes and any length work", guarantees.StrangeKeys[Tx]},
		{"values of any type and any text name their row", guarantees.StrangeValues[Tx]},

		// Several keys
		{"several keys are locked together, duplicates once", guarantees.SeveralKeys[Tx]},
		{"opposite orders of keys never deadlock", guarantees.OppositeOrders[Tx]},
		{"up to 256 keys or rows are locked at once, and no others", guarantees.ManyKeys[Tx]},
		{"more than 256 keys or rows are an error, and nothing is sent", guarantees.TooManyKeys[Tx]},

		// Order
		{"thirty waiters are served in the order in which they queued", guarantees.ServedInOrder[Tx]},
		{"a try does not overtake a waiter", guarantees.TryBehindWaiter[Tx]},

		// Waiting ends, and TestCancelWithoutKey, TestSlowCancel, TestCancelsHitNoNeighbour
		{"a cancelled wait ends at once and leaves the queue", guarantees.CancelledWait[Tx]},
		{"a deadline of the context ends the wait and not the hold", guarantees.DeadlineOfContext[Tx]},
		{"Within ends the wait, for every verb", guarantees.Within[Tx]},
		{"a waiter that gives up does not disturb the next one", guarantees.MiddleWaiterLeaves[Tx]},

		// The caller's transaction
		{"LockTx holds until the caller's transaction ends", guarantees.LockTxHolds[Tx]},
		{"the caller's transaction stays usable after a miss, a timeout, a cancel", guarantees.CallersTransaction[Tx]},
		{"the caller's settings are what they were", guarantees.CallersSettings[Tx]},
		{"no setting outlives a transaction of ours, however that ends", guarantees.SettingsEnd[Tx]},
		{"a transaction that would read stale data is refused", guarantees.StaleSnapshot[Tx]},
		{"a transaction of the caller's that has ended is an error", guarantees.EndedTransaction[Tx]},

		// The work dies with the lock, and TestCallsWhileRowsAreOpen, TestHolderStopped,
		// TestHoldsThatEnd
		{"Do commits on success and rolls back on an error, a panic and Goexit", guarantees.DoEnds[Tx]},
		{"work that ends its own transaction is not committed without the lock", guarantees.SelfEnded[Tx]},
		{"work that is given up frees its key at once, whatever runs at the server", guarantees.GivenUp[Tx]},
		{"work that swallows a deadlock is not committed", guarantees.SwallowedDeadlock[Tx]},
		{"work that swallows a failed statement is not reported as done when it is not", guarantees.SwallowedError[Tx]},
		{"a connection killed in the middle is an error, from every verb", guarantees.KilledConnection[Tx]},
		{"a connection cut by the network is an error, and bounded in time", guarantees.CutConnection[Tx]},
		{"a context that ends in the work prevents the commit", guarantees.ContextEndsInWork[Tx]},
		{"a context that ends during a statement of the work is no loss", guarantees.HungUp[Tx]},
		{"a session that others were in, or that was lost before, is a loss", guarantees.HungUpLate[Tx]},
		{"Do reads what the last holder wrote", guarantees.ReadsCurrent[Tx]},

		// Loss and leases, and TestServerKilled, TestHolderStopped,
		// TestStoppedWhileTheServerIsActive, TestAPingGetsItsTurn
		{"there is no false alarm, and Unlock is none", guarantees.NoFalseAlarm[Tx]},
		{"a transaction that ended behind its session's back is a loss", guarantees.RolledBack[Tx]},
		{"the lease is kept, on both sides", guarantees.LeaseKept[Tx]},
		{"the log tells of a loss, and is silent otherwise", guarantees.Logged[Tx]},
		{"the log tells of a Lock that was forgotten", guarantees.ForgottenLock[Tx]},

		// Deaths: TestHolderKilled, TestServerKilled, TestFailover, TestWaiterKilled

		// Long holds: TestNothingWaitsForALock, TestHeldLocksAreRenewed, TestRenewedLeaseIsKept,
		// TestFailedRenewalIsALoss, TestCancelledRenewalIsALoss,
		// TestCancelledRenewalsLeaveNothing, TestLockedRowTakesChildren, TestInNobodysWay

		// Fencing tokens, and TestServerKilled, TestFailover
		{"tokens increase over all holders", guarantees.TokensIncrease[Tx]},
		{"tokens increase in the order of holders", guarantees.TokensInOrder[Tx]},
		{"a new run of the server is numbered once, above all before", guarantees.NewRun[Tx]},

		// Reentry
		{"reentry follows the context, counts, and ends with the last Lock", guarantees.Reentry[Tx]},
		{"nested locks need one connection", guarantees.OneConnection[Tx]},
		{"a nested Do is a savepoint", guarantees.NestedDo[Tx]},
		{"a Do inside a Lock is refused, and Apart is the way out", guarantees.DoInsideLock[Tx]},
		{"a call beside a nested Do, or with the wrong context, is refused", guarantees.BesideNestedDo[Tx]},
		{"what a failed nested Do has locked is not believed in", guarantees.UndoneLocks[Tx]},
		{"a nested Do that outlives its Do returns nil only if it is committed", guarantees.NestedDoOutlivesDo[Tx]},
		{"a nested Do that cannot be undone keeps its Do from being committed", guarantees.NestedDoStuck[Tx]},
		{"a loss elsewhere is not the session's", guarantees.ForeignLoss[Tx]},
		{"a nested wait that ends leaves the outer lock held", guarantees.NestedWaitEnds[Tx]},
		{"a nested Do that fails undoes its own work, also behind a miss", guarantees.NestedAfterMissed[Tx]},
		{"a nested deadlock is an error and never a silent loss", guarantees.NestedDeadlock[Tx]},
		{"calls that share a Lock's context take turns; in a Do that is an error", guarantees.SharedContext[Tx]},

		// Combine, and TestOrdersOutliveTheServer
		{"each caller of a Combined gets its own outcome, after the commit", guarantees.CombinedOutcomes[Tx]},
		{"a batch is what is queued when it begins, in order and up to its limit", guarantees.CombinedBatches[Tx]},
		{"the work of a batch has the lock, and nothing of its callers' contexts", guarantees.CombinedContext[Tx]},
		{"an order leaves the queue with its context, and not the work", guarantees.CombinedLeaving[Tx]},
		{"any order may leave a batch that waits, and the others keep their place", guarantees.CombinedWaits[Tx]},
		{"an order that makes its batch fail takes no other with it", guarantees.CombinedCulprit[Tx]},
		{"an order does not get the error of one that has left its batch", guarantees.CombinedCulpritLeaves[Tx]},
		{"a wait that fails for all of a batch is not tried again", guarantees.CombinedWaitFails[Tx]},
		{"a batch that failed is tried again in halves, and orders may leave", guarantees.CombinedHalves[Tx]},
		{"wrong numbers of results, and bad input of Combine, commit nothing", guarantees.CombinedRefuses[Tx]},
		{"a panic in a batch goes on at one caller, and the others are told", guarantees.CombinedPanics[Tx]},
		{"a panic while a batch waits is one caller's, and the others are told", guarantees.CombinedWaitPanics[Tx]},
		{"a Tracer that panics at the end of a batch keeps nobody from its outcome", guarantees.CombinedEndPanics[Tx]},
		{"a lost session is an error to all of its batch, without another try", guarantees.CombinedLost[Tx]},
		{"an order joins the Do in whose work it is placed, and no Lock", guarantees.CombinedNested[Tx]},

		// Leaders, and TestLeaderKilled, TestLeaderStopped
		{"one leads an election at a time, terms increase, and Leader tells who it is", guarantees.OneLeader[Tx]},
		{"Lead ends with its work, a panic or the context, and has resigned then", guarantees.Resigning[Tx]},
		{"the work of a leader is an owner of its own", guarantees.LeadersWork[Tx]},
		{"a leader that is lost is told before the next leads, and campaigns again", guarantees.LostLeader[Tx]},
		{"a candidate that comes late to its term changes nothing", guarantees.LateRecord[Tx]},
		{"a candidate that finds a later term in the record does not begin its work", guarantees.Overtaken[Tx]},
		{"the next leads within 20 ms after a leader has resigned", guarantees.SoonAfterResigning[Tx]},
		{"candidates wait in their process, with one session for each election", guarantees.CandidatesWait[Tx]},
		{"a candidate whose pool is full lets another lead", guarantees.ElectionInFullPool[Tx]},
		{"elections of different names share nothing, and identities are kept", guarantees.ElectionNames[Tx]},

		// Release, and TestUnlockBounded
		{"Unlock works on a cancelled context, once", guarantees.Unlock[Tx]},
		{"Close ends what is held and what waits, of every kind", guarantees.Closing[Tx]},

		// Tracing
		{"a tracer is told of each call once and in order", guarantees.TracedCalls[Tx]},
		{"a tracer is told why a lock was not granted, and of no end then", guarantees.TracedFailures[Tx]},
		{"a tracer is told how a Do ended", guarantees.TracedWork[Tx]},
		{"a tracer is told of nested calls, and of what is released with a Do", guarantees.TracedNesting[Tx]},
		{"a tracer is told of a loss before the Unlock", guarantees.TracedLoss[Tx]},

		{"a tracer is told of each batch once, and of its parts", guarantees.CombinedTraced[Tx]},

		{"a tracer is told of each term of a leader", guarantees.ElectionTraced[Tx]},

		// Inspection, and TestQueued
		{"Inspect shows the holder and the waiters, in their order", guarantees.InspectShows[Tx]},
		{"Inspect shows joined keys, and nothing that was released", guarantees.InspectNested[Tx]},
		{"Inspect shows locks in callers' transactions, and rows of their tables", guarantees.InspectTx[Tx]},
		{"Break ends the holder that was shown, and no other", guarantees.Breaks[Tx]},
		{"Inspect and Break refuse what makes no sense", guarantees.InspectRefuses[Tx]},

		// Pools, and TestTracerPanics, TestQueued
		{"a limit on a wait costs no transaction, however far away the server is", guarantees.LimitFarAway[Tx]},
		{"a cancelled wait costs no transaction, however far away the server is", guarantees.CancelledFarAway[Tx]},
		{"a full pool is an error in time", guarantees.FullPool[Tx]},
		{"a hundred callers of one key leave the pool to others", guarantees.QueueLeavesPool[Tx]},
		{"callers of a process are served in their order, without a connection", guarantees.QueueOrder[Tx]},
		{"waits and tries in the process end at once, and nothing is sent", guarantees.QueuedWaitEnds[Tx]},
		{"Within counts the wait in the process and at the server", guarantees.WithinSpansQueue[Tx]},
		{"who holds a session waits at the server, which sees every deadlock", guarantees.QueueSeesDeadlocks[Tx]},
		{"after any error the pool has its connections back, clean", guarantees.CleanPool[Tx]},
		{"a lock is two round trips, also on a connection that was idle", guarantees.TwoTrips[Tx]},
		{"callers that begin together do not all look the lock table up", guarantees.BeginTogether[Tx]},
		{"a look-up that gets no answer keeps nobody from another", guarantees.SilentLookUps[Tx]},

		// Installation and bad input, and TestKnownUnsafe, TestNodeOfCluster, TestOtherTable
		{"ten replicas install at once", guarantees.InstallTogether[Tx]},
		{"Install completes a half-seeded table and refuses another number of slots", guarantees.InstallAgain[Tx]},
		{"a table that is missing, incomplete or of another shape is ErrNotInstalled", guarantees.NotInstalled[Tx]},
		{"what is missing of one kind is ErrNotInstalled, and Install mends it", guarantees.KindsNotInstalled[Tx]},
		{"clients that disagree on the number of slots get an error", guarantees.SlotsChanged[Tx]},
		{"Schema is what Install does", guarantees.SchemaText[Tx]},
		{"names in quotes and with a schema work, broken ones are errors", guarantees.TableNames[Tx]},
		{"bad input is an error and changes nothing", guarantees.BadInput[Tx]},
		{"a lease that cannot be kept is an error and changes nothing", guarantees.BadLeases[Tx]},
		{"Check accepts this engine", guarantees.CheckAccepts[Tx]},
		{"Ping asks for the lock table, and waits for no lock", guarantees.Pinged[Tx]},

		// Once
		{"work is done once, whoever asks for it", guarantees.OnceEach[Tx]},
		{"who comes while the work runs waits, and runs it if it failed", guarantees.OnceWaits[Tx]},
		{"work that failed, panicked or lost its session leaves no marker", guarantees.OnceFails[Tx]},
		{"a Once that returns an error leaves no marker, also of work that sends COMMIT", guarantees.OnceSelfEnded[Tx]},
		{"in a Do, a marker shares the fate of its work", guarantees.OnceNested[Tx]},
		{"work is done once in each window of the database's clock", guarantees.OncePer[Tx]},
		{"of transactions that mark the same work one is first, and other keys go on", guarantees.OnceTx[Tx]},
		{"markers are forgotten and swept, and nothing else is", guarantees.OnceForgets[Tx]},
		{"without its table or with bad input, Once is an error that says what to do", guarantees.OnceRefused[Tx]},
		{"who comes later gets the answer of the first time, with the same payload", guarantees.ValueKept[Tx]},
		{"of duplicates at once one runs, and all get its answer", guarantees.ValueTogether[Tx]},
		{"work that failed, or whose answer cannot be kept, leaves nothing", guarantees.ValueFails[Tx]},
		{"in a Do, an answer shares the fate of its work", guarantees.ValueNested[Tx]},
		{"Install adds answers to tables that have none, where Once goes on", guarantees.ValueInstalled[Tx]},

		// Shared, and TestSharedWritesNothing, TestSharedTableIsSpelledInTwoWays,
		// TestSharedLocksAreRenewed, TestStandbyRefusesShared, TestReadOnlyServerRefusesShared
		{"readers hold a lock together, a writer has it alone", guarantees.SharedTogether[Tx]},
		{"the work of those that share commits", guarantees.SharedWork[Tx]},
		{"readers and writers are served in the order in which they queued", guarantees.SharedInOrder[Tx]},
		{"a shared try of what the session has alone does not miss for those who wait", guarantees.SharedOfHeld[Tx]},
		{"an upgrade is refused at once, and nothing is sent", guarantees.Upgrade[Tx]},
		{"a shared wait ends and leaves the queue", guarantees.SharedWaitEnds[Tx]},
		{"a nested Do that fails takes nothing from what was shared before", guarantees.SharedUndone[Tx]},
		{"shared locks have tokens like others", guarantees.SharedTokens[Tx]},
		{"Inspect shows all readers, and Break ends one of them", guarantees.InspectReaders[Tx]},

		// Semaphores, and TestLimitOnWaits
		{"a semaphore lets n in and never one more, whichever process they are of", guarantees.SemaphoreBound[Tx]},
		{"waiters of a semaphore are served in order, in the process and at the server", guarantees.SemaphoreOrder[Tx]},
		{"each verb takes one permit of a semaphore, a call in a session none", guarantees.SemaphoreVerbs[Tx]},
		{"the death of a semaphore's holder, or first waiter, lets the next go on", guarantees.SemaphoreDeath[Tx]},
		{"waits for a permit that end at any moment leave nothing behind", guarantees.SemaphoreCancelled[Tx]},
		{"somebody's cancels cost those who want a permit a second at most", guarantees.SemaphoreKilled[Tx]},
		{"many waiters of a semaphore take a connection a process, and send little", guarantees.SemaphoreCosts[Tx]},
		{"Inspect shows who has a semaphore's permits, and Break ends one", guarantees.SemaphoreInspected[Tx]},

		// Exec, and TestRoundTrips
		{"Exec commits its statements together, and tells what each has affected", guarantees.ExecCommits[Tx]},
		{"Rows of a statement sells what is there and no more", guarantees.ExecSells[Tx]},
		{"statements that the server cannot count do the same", guarantees.ExecStrange[Tx]},
		{"a statement of Exec that fails commits nothing, and the error says which", guarantees.ExecFails[Tx]},
		{"an argument of Exec means what it means in the work of a Do", guarantees.ExecArguments[Tx]},
		{"an argument of Exec that panics costs no connection", guarantees.ExecPanics[Tx]},
		{"Into has the first row of a statement", guarantees.ExecReturns[Tx]},
		{"a statement behind an Into has for its argument what that was filled with", guarantees.ExecPassesOn[Tx]},
		{"Exec waits as Do does, and Within bounds the wait alone", guarantees.ExecWaits[Tx]},
		{"Exec in the work of a Do is part of its transaction", guarantees.ExecNested[Tx]},
		{"an Exec that fails in the work of a Do undoes its own work and no other", guarantees.ExecNestedFails[Tx]},
		{"an Exec that ends in the work of a Do leaves that Do going", guarantees.ExecNestedEnds[Tx]},
		{"what comes behind a COMMIT among the statements is not committed", guarantees.ExecSelfEnded[Tx]},
		{"an Exec whose connection breaks in the wait does not say that nothing is committed", guarantees.ExecCut[Tx]},
		{"an Exec that ends while a statement waits commits nothing", guarantees.ExecKilled[Tx]},

		// Claims, and TestClaimKilledAtCommit, TestClaimTrips
		{"a claim has one holder, without a connection", guarantees.ClaimHeld[Tx]},
		{"the text of a claim is good for that claim alone", guarantees.ClaimGuessed[Tx]},
		{"what is no claim is refused", guarantees.ClaimRefused[Tx]},
		{"work under a claim commits only if that was held, and keeps it", guarantees.ClaimWork[Tx]},
		{"a claim in the work of a Do is part of it", guarantees.ClaimNested[Tx]},
		{"who has a claim takes it again", guarantees.ClaimOwn[Tx]},
		{"Inspect shows claims, and Break ends them", guarantees.ClaimShown[Tx]},
		{"who waits for a claim takes no connection", guarantees.ClaimWaits[Tx]},
		{"who waits for late claims keeps nobody waiting", guarantees.ClaimsLate[Tx]},
		{"Within bounds all of a claim's call", guarantees.ClaimsBounded[Tx]},
		{"many wait for a claim with few connections", guarantees.ClaimsMany[Tx]},
		{"Sweep deletes claims that ended", guarantees.ClaimsSwept[Tx]},

		// Any free rows, and TestUnlockedTables, TestAnyRowsOfAnIndex
		{"of any free rows no two sessions get one, and each job is done once", guarantees.AnyRowsApart[Tx]},
		{"free rows are taken in order and up to a limit, none is told at once", guarantees.AnyRowsOrder[Tx]},
		{"keys of text and arguments of any type find free rows", guarantees.AnyRowsKeys[Tx]},
		{"free rows in the work of a Do are part of its transaction", guarantees.AnyRowsNested[Tx]},
		{"work on free rows that is lost is not committed, and ctx ends a wait for DDL", guarantees.AnyRowsEnd[Tx]},
		{"what makes no sense of free rows is refused", guarantees.AnyRowsRefused[Tx]},

		// Retry
		{"a deadlock is tried again, and each effect comes once", guarantees.DeadlockRetried[Tx]},
		{"work whose session was lost before COMMIT is tried again", guarantees.LossRetried[Tx]},
		{"a Once and a batch are tried again as a whole", guarantees.OnceRetried[Tx]},

		// Inspection of elections
		{"Inspect shows who leads and who campaigns, and Break ends the leader", guarantees.InspectElections[Tx]},
	}
}

// alone are the guarantees that are shown one after the other: neighbours would disturb an order or
// a count that is measured, and would hide a goroutine that is left behind. The last one ends the
// run of tokens of a whole server of MySQL or MariaDB.
func alone[Tx any]() []guarantee[Tx] {
	return []guarantee[Tx]{
		// Waiting ends
		{"a cancel that races with the grant leaks nothing", guarantees.CancelRace[Tx]},

		// The caller's transaction
		{"a cancel that races with the grant leaves the caller's transaction usable", guarantees.GuestCancelRace[Tx]},

		// Loss and leases
		{"a lost session is announced at once, to the Lock and in the work", guarantees.LossAnnounced[Tx]},

		// Reentry
		{"what a failed nested Do has left behind is undone with it", guarantees.UndoneWhileJoining[Tx]},

		// Fencing tokens
		{"a run of the server whose counts are spent is followed by another", guarantees.SpentRun[Tx]},
	}
}

func TestMain(m *testing.M) { testbed.Main(m, servers.Kinds(), servers.Further()...) }

func TestGuarantees(t *testing.T) {
	lines := lines(t)
	t.Run("alone", func(t *testing.T) {
		for _, line := range lines {
			t.Run(line.name, func(t *testing.T) {
				one := line.alone
				if !line.together { // a goroutine that is left behind shows at the guarantee that left it
					one = slices.Concat(line.alone, line.sideBySide)
				}
				for i, p := range one {
					if tier.Pick(line.leaves(i, p), false, false) {
						continue
					}
					t.Run(p.says, func(t *testing.T) {
						testbed.NoGoroutines(t)
						p.show(t)
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
				for i, p := range line.sideBySide {
					if tier.Pick(line.leaves(i, p), line.leaves(i, p), false) {
						continue
					}
					t.Run(p.says, func(t *testing.T) {
						if !line.inTurn {
							t.Parallel()
						}
						p.show(t)
					})
				}
			})
		}
	})
}

// promise is a guarantee on a line.
type promise struct {
	says string
	show func(*testing.T)
}

// line is an engine and a client, and the guarantees that it shows.
type line struct {
	name              string
	inTurn            bool     // one guarantee after the other
	together          bool     // shows those of sideBySide at the same time, and not alone
	half              int      // of the guarantees that it shows, but in the full tier: 0 or 1
	also              []string // of the other half, because the engine's other client cannot show them
	alone, sideBySide []promise
}

// leaves tells whether a line leaves a guarantee to the other client of its engine.
func (l line) leaves(i int, p promise) bool { return i%2 != l.half && !slices.Contains(l.also, p.says) }

// lineOf leaves out the guarantees that are unshown, by the reason. A pooler gives a session to one
// client after the other: guarantees that kill or spoil sessions would spoil those of their
// neighbours there. So each line has a pooler of its own.
func lineOf[Tx any](e *testbed.Engine, c testbed.Client[Tx], unshown map[string][]string) line {
	promises := func(list []guarantee[Tx]) (promises []promise) {
		for _, g := range list {
			promises = append(promises, promise{g.says, func(t *testing.T) {
				for why, those := range unshown {
					if slices.Contains(those, g.says) {
						t.Log(why)
						return
					}
				}
				g.show(t, e, c)
			}})
		}
		return promises
	}
	return line{
		name: e.Name + " " + c.Name, inTurn: e.Pooled, together: e.Further || e.IsCluster() || !tier.Full(),
		alone: promises(alone[Tx]()), sideBySide: promises(sideBySide[Tx]()),
	}
}

// lines are those of the tier: in the short one PostgreSQL 18, MySQL and MariaDB, in the usual one
// what that leaves out, PostgreSQL 15 and PgBouncer. There each engine has two clients, and each
// guarantee of sideBySide is shown with one of them.
func lines(t *testing.T) (lines []line) {
	further := func(e *testbed.Engine) bool { return tier.Pick(true, e.Kind == servers.Postgres15, true) }
	testbed.Lines(
		func(e *testbed.Engine, c testbed.Client[pgx.Tx]) {
			if further(e) {
				lines = append(lines, lineOf(e, c, nil))
			}
		},
		func(e *testbed.Engine, c testbed.Client[*sql.Tx]) {
			if further(e) {
				lines = append(lines, onSQL(e, c))
			}
		})
	if !testing.Short() {
		lines = append(lines,
			lineOf(testbed.PgBouncer(t), testbed.PgxOpened(), nil), onSQL(testbed.PgBouncer(t), testbed.PostgresSQL[0]))
	}
	if tier.Full() {
		lines = append(lines, lineOf(testbed.Pgpool(t, 200, true), testbed.PostgresPgx[1], nil),
			onSQL(testbed.Pgpool(t, 200, false), testbed.PostgresSQL[0]),
			lineOf(testbed.Galera(t), testbed.MySQLOpened(), notOnGalera))
	}
	for i := range lines {
		lines[i].half = (i + i/2) % 2 // the first client's on one engine, the second's on the next
	}
	return lines
}

func onSQL(e *testbed.Engine, c testbed.Client[*sql.Tx]) line {
	switch {
	case e.Postgres:
		return lineOf(e, c, nil)
	case c.Name == testbed.MySQLSQL[0].Name:
		return lineOf(e, c, map[string][]string{noSocket: unseen})
	}
	l := lineOf(e, c, nil)
	l.also = unseen
	return l
}

const noSocket = "go-sql-driver shows no socket, so the end of an idle connection is not seen"

// unseen are the guarantees that need to see the end of an idle connection.
var unseen = []string{
	"the lease is kept, on both sides",
	"the log tells of a loss, and is silent otherwise",
	"a lost session is an error to all of its batch, without another try",
	"Break ends the holder that was shown, and no other",
	"Inspect shows all readers, and Break ends one of them",
	"Inspect shows who leads and who campaigns, and Break ends the leader",
	"a lost session is announced at once, to the Lock and in the work",
	"a leader that is lost is told before the next leads, and campaigns again",
}

// notOnGalera are the guarantees that do not hold on three nodes of Galera, each fixture on the
// next one, or not as their tests show them, by the reason.
var notOnGalera = map[string][]string{
	"what shares, and a semaphore are refused": {
		"what is missing of one kind is ErrNotInstalled, and Install mends it",
		"Exec in the work of a Do is part of its transaction",
		"an Exec that fails in the work of a Do undoes its own work and no other",
		"Exec commits its statements together, and tells what each has affected",
		"Inspect shows who has a semaphore's permits, and Break ends one",
		"waits for a permit that end at any moment leave nothing behind",
		"many waiters of a semaphore take a connection a process, and send little",
		"somebody's cancels cost those who want a permit a second at most",
		"each verb takes one permit of a semaphore, a call in a session none",
		"a semaphore lets n in and never one more, whichever process they are of",
		"waiters of a semaphore are served in order, in the process and at the server",
		"the death of a semaphore's holder, or first waiter, lets the next go on",
		"shared locks have tokens like others",
		"Inspect shows all readers, and Break ends one of them",
		"a nested Do that fails takes nothing from what was shared before",
		"an upgrade is refused at once, and nothing is sent",
		"a shared wait ends and leaves the queue",
		"readers and writers are served in the order in which they queued",
		"the work of those that share commits",
		"a shared try of what the session has alone does not miss for those who wait",
		"readers hold a lock together, a writer has it alone",
		"a nested Do that fails undoes its own work, also behind a miss",
		"a transaction that ended behind its session's back is a loss",
	},
	"rows of a caller's table are refused": {
		"no update is lost under Do",
		"of several tries of one key at once exactly one wins",
		"rows of the caller's own table are locked, and no others",
		"values of any type and any text name their row",
		"opposite orders of keys never deadlock",
		"up to 256 keys or rows are locked at once, and no others",
		"a context that ends during a statement of the work is no loss",
		"a nested wait that ends leaves the outer lock held",
		"an order that makes its batch fail takes no other with it",
		"a wait that fails for all of a batch is not tried again",
		"a statement of Exec that fails commits nothing, and the error says which",
		"after any error the pool has its connections back, clean",
		"bad input is an error and changes nothing",
		"names in quotes and with a schema work, broken ones are errors",
		"a tracer is told how a Do ended",
		"of any free rows no two sessions get one, and each job is done once",
		"free rows are taken in order and up to a limit, none is told at once",
		"keys of text and arguments of any type find free rows",
		"free rows in the work of a Do are part of its transaction",
		"work on free rows that is lost is not committed, and ctx ends a wait for DDL",
		"what makes no sense of free rows is refused",
	},
	"there is no order among waiters on different nodes": {
		"any order may leave a batch that waits, and the others keep their place",
	},
	"KILL QUERY, also by the end of a context, rolls the transaction back": {
		"a cancel that races with the grant leaves the caller's transaction usable",
		"the lease is kept, on both sides",
		"an Exec that ends in the work of a Do leaves that Do going",
	},
	"a token takes a second connection, and more trips": {"many wait for a claim with few connections"},
	"tokens are not counted in runs of a server": {
		"a new run of the server is numbered once, above all before",
		"a run of the server whose counts are spent is followed by another",
	},
	"a node shows its own sessions, and a row as a key while a session waits": {
		"Inspect shows who leads and who campaigns, and Break ends the leader",
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
