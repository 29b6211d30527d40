package txlock_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/servers"
)

// The clients of each database: every guarantee below holds for every one of them.
var (
	postgresPgx = []client[pgx.Tx]{pgxOnPool(""), pgxOnPool("simple protocol"), pgxOpened()}
	postgresSQL = []client[*sql.Tx]{
		sqlOnPool("pgx", func(db *sql.DB) dialects.Driver[*sql.Tx] { return postgres.NewSQL(db) }),
	}
	mysqlSQL = []client[*sql.Tx]{
		sqlOnPool("mysql", func(db *sql.DB) dialects.Driver[*sql.Tx] { return mysql.New(db) }),
		mysqlOpened(),
	}
)

// clients are the lines of the table engine × client.
func clients(kind servers.Kind) ([]client[pgx.Tx], []client[*sql.Tx]) {
	if kind == servers.MySQL || kind == servers.MariaDB {
		return nil, mysqlSQL
	}
	return postgresPgx, postgresSQL
}

// guarantee is a promise in a sentence, and the test that shows it for each transaction type.
type guarantee struct {
	says string
	pgx  func(*testing.T, *engine, client[pgx.Tx])
	sql  func(*testing.T, *engine, client[*sql.Tx])
}

var guarantees = []guarantee{
	// One holder
	{"at most one session holds a key", oneHolder[pgx.Tx], oneHolder[*sql.Tx]},
	{"no update is lost under Do", noLostUpdate[pgx.Tx], noLostUpdate[*sql.Tx]},
	{"a try misses what is held and takes what is free", tries[pgx.Tx], tries[*sql.Tx]},
	{"of several tries of one key at once exactly one wins", oneTryWins[pgx.Tx], oneTryWins[*sql.Tx]},
	{"rows of the caller's own table are locked, and no others", ownRows[pgx.Tx], ownRows[*sql.Tx]},
	{"keys of any bytes and any length work", strangeKeys[pgx.Tx], strangeKeys[*sql.Tx]},
	{"values of any type and any text name their row", strangeValues[pgx.Tx], strangeValues[*sql.Tx]},

	// Several keys
	{"several keys are locked together, duplicates once", severalKeys[pgx.Tx], severalKeys[*sql.Tx]},
	{"opposite orders of keys never deadlock", oppositeOrders[pgx.Tx], oppositeOrders[*sql.Tx]},
	{"a thousand keys at once work", thousandKeys[pgx.Tx], thousandKeys[*sql.Tx]},

	// Order
	{"thirty waiters are served in the order in which they queued", servedInOrder[pgx.Tx], servedInOrder[*sql.Tx]},
	{"tight loops are served in order, and nobody starves", tightLoops[pgx.Tx], tightLoops[*sql.Tx]},
	{"a try does not overtake a waiter", tryBehindWaiter[pgx.Tx], tryBehindWaiter[*sql.Tx]},

	// Waiting ends
	{"a cancelled wait ends at once and leaves the queue", cancelledWait[pgx.Tx], cancelledWait[*sql.Tx]},
	{"a deadline of the context ends the wait and not the hold", deadlineOfContext[pgx.Tx], deadlineOfContext[*sql.Tx]},
	{"Within ends the wait, for every verb", within[pgx.Tx], within[*sql.Tx]},
	{"a waiter that gives up does not disturb the next one", middleWaiterLeaves[pgx.Tx], middleWaiterLeaves[*sql.Tx]},
	{"a cancel that races with the grant leaks nothing", cancelRace[pgx.Tx], cancelRace[*sql.Tx]},

	// The caller's transaction
	{"LockTx holds until the caller's transaction ends", lockTxHolds[pgx.Tx], lockTxHolds[*sql.Tx]},
	{
		"the caller's transaction stays usable after a missed try, a timeout, a cancel", callersTransaction[pgx.Tx],
		callersTransaction[*sql.Tx],
	},
	{"the caller's settings are what they were", callersSettings[pgx.Tx], callersSettings[*sql.Tx]},
	{"a transaction that would read stale data is refused", staleSnapshot[pgx.Tx], staleSnapshot[*sql.Tx]},
	{"a transaction of the caller's that has ended is an error", endedTransaction[pgx.Tx], endedTransaction[*sql.Tx]},

	// The work dies with the lock
	{"Do commits on success and rolls back on an error, a panic and Goexit", doEnds[pgx.Tx], doEnds[*sql.Tx]},
	{"work that ends its own transaction is not committed without the lock", selfEnded[pgx.Tx], selfEnded[*sql.Tx]},
	{"work that swallows a deadlock is not committed", swallowedDeadlock[pgx.Tx], swallowedDeadlock[*sql.Tx]},
	{
		"work that swallows a failed statement is not reported as done when it is not", swallowedError[pgx.Tx],
		swallowedError[*sql.Tx],
	},
	{
		"a connection killed in the middle is an error, from every verb", killedConnection[pgx.Tx],
		killedConnection[*sql.Tx],
	},
	{"a connection cut by the network is an error, and bounded in time", cutConnection[pgx.Tx], cutConnection[*sql.Tx]},
	{"a context that ends in the work prevents the commit", contextEndsInWork[pgx.Tx], contextEndsInWork[*sql.Tx]},
	{"Do reads what the last holder wrote", readsCurrent[pgx.Tx], readsCurrent[*sql.Tx]},

	// Loss and leases
	{"a lost session is announced at once, to the Lock and in the work", lossAnnounced[pgx.Tx], lossAnnounced[*sql.Tx]},
	{"there is no false alarm, and Unlock is none", noFalseAlarm[pgx.Tx], noFalseAlarm[*sql.Tx]},
	{"ten thousand handles need no goroutine each", fewGoroutines[pgx.Tx], fewGoroutines[*sql.Tx]},
	{"the lease is kept, on both sides", leaseKept[pgx.Tx], leaseKept[*sql.Tx]},
	{"the log tells of a loss, and is silent otherwise", logged[pgx.Tx], logged[*sql.Tx]},

	// Fencing tokens
	{"tokens increase over all holders", tokensIncrease[pgx.Tx], tokensIncrease[*sql.Tx]},
	{"tokens increase in the order of holders", tokensInOrder[pgx.Tx], tokensInOrder[*sql.Tx]},
	{"a new run of the server is numbered once, above all before", newRun[pgx.Tx], newRun[*sql.Tx]},
	{"two lock tables on one pool have tokens of their own", twoFences[pgx.Tx], twoFences[*sql.Tx]},
	{"fencing that is not installed is ErrNotInstalled", fenceMissing[pgx.Tx], fenceMissing[*sql.Tx]},

	// Reentry
	{"reentry follows the context, counts, and ends with the last handle", reentry[pgx.Tx], reentry[*sql.Tx]},
	{"nested locks need one connection", oneConnection[pgx.Tx], oneConnection[*sql.Tx]},
	{"a nested Do is a savepoint", nestedDo[pgx.Tx], nestedDo[*sql.Tx]},
	{"a Do inside a Lock is committed by its Unlock", doInsideLock[pgx.Tx], doInsideLock[*sql.Tx]},
	{
		"nested Dos side by side take turns, each with its own end", concurrentNestedDos[pgx.Tx],
		concurrentNestedDos[*sql.Tx],
	},
	{"a nested Do that outlives its Do is undone", nestedDoLeftBehind[pgx.Tx], nestedDoLeftBehind[*sql.Tx]},
	{"what a failed nested Do has locked is not believed in", undoneLocks[pgx.Tx], undoneLocks[*sql.Tx]},
	{
		"a call that a failed nested Do has left behind gets nothing", undoneWhileJoining[pgx.Tx],
		undoneWhileJoining[*sql.Tx],
	},
	{"a loss elsewhere is not the session's", foreignLoss[pgx.Tx], foreignLoss[*sql.Tx]},
	{"a nested wait that ends leaves the outer lock held", nestedWaitEnds[pgx.Tx], nestedWaitEnds[*sql.Tx]},
	{"a nested deadlock is an error and never a silent loss", nestedDeadlock[pgx.Tx], nestedDeadlock[*sql.Tx]},
	{"goroutines that share a context take turns", sharedContext[pgx.Tx], sharedContext[*sql.Tx]},

	// Release
	{"Unlock works on a cancelled context, once", unlock[pgx.Tx], unlock[*sql.Tx]},
	{"Close ends what is held", closing[pgx.Tx], closing[*sql.Tx]},

	// Tracing
	{"a tracer is told of each call once and in order", tracedCalls[pgx.Tx], tracedCalls[*sql.Tx]},
	{
		"a tracer is told why a lock was not granted, and of no end then", tracedFailures[pgx.Tx],
		tracedFailures[*sql.Tx],
	},
	{"a tracer is told how a Do ended", tracedWork[pgx.Tx], tracedWork[*sql.Tx]},
	{
		"a tracer is told of nested calls, and of what is released with a Do", tracedNesting[pgx.Tx],
		tracedNesting[*sql.Tx],
	},
	{"a tracer is told of a loss before the Unlock", tracedLoss[pgx.Tx], tracedLoss[*sql.Tx]},

	// Inspection
	{"Inspect shows the holder and the waiters, in their order", inspectShows[pgx.Tx], inspectShows[*sql.Tx]},
	{"Inspect shows since when a lock is held, without the wait for it", inspectSince[pgx.Tx], inspectSince[*sql.Tx]},
	{"Inspect shows joined keys, and nothing that was released", inspectNested[pgx.Tx], inspectNested[*sql.Tx]},
	{"Inspect shows locks in callers' transactions, and rows of their tables", inspectTx[pgx.Tx], inspectTx[*sql.Tx]},
	{"Break ends the holder that was shown, and no other", breaks[pgx.Tx], breaks[*sql.Tx]},
	{"Inspect and Break refuse what makes no sense", inspectRefuses[pgx.Tx], inspectRefuses[*sql.Tx]},

	// Pools
	{
		"a nested wait ends without a loss, however far away the server is", nestedWaitFarAway[pgx.Tx],
		nestedWaitFarAway[*sql.Tx],
	},
	{
		"a limit on a wait costs no transaction, however far away the server is", limitFarAway[pgx.Tx],
		limitFarAway[*sql.Tx],
	},
	{
		"a cancelled wait costs no transaction, however far away the server is", cancelledFarAway[pgx.Tx],
		cancelledFarAway[*sql.Tx],
	},
	{"a full pool is an error in time", fullPool[pgx.Tx], fullPool[*sql.Tx]},
	{"after any error the pool has its connections back, clean", cleanPool[pgx.Tx], cleanPool[*sql.Tx]},

	// Installation and bad input
	{"ten replicas install at once", installTogether[pgx.Tx], installTogether[*sql.Tx]},
	{
		"Install completes a half-seeded table and refuses another number of slots", installAgain[pgx.Tx],
		installAgain[*sql.Tx],
	},
	{
		"a table that is missing, incomplete or of another shape is ErrNotInstalled", notInstalled[pgx.Tx],
		notInstalled[*sql.Tx],
	},
	{"clients that disagree on the number of slots get an error", slotsChanged[pgx.Tx], slotsChanged[*sql.Tx]},
	{"Schema is what Install does", schemaText[pgx.Tx], schemaText[*sql.Tx]},
	{"names in quotes and with a schema work, broken ones are errors", tableNames[pgx.Tx], tableNames[*sql.Tx]},
	{"bad input is an error and changes nothing", badInput[pgx.Tx], badInput[*sql.Tx]},
	{"a lease that cannot be kept is an error and changes nothing", badLeases[pgx.Tx], badLeases[*sql.Tx]},
	{"Check accepts this engine", checkAccepts[pgx.Tx], checkAccepts[*sql.Tx]},
}

func TestGuarantees(t *testing.T) {
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) {
			onPgx, onSQL := clients(e.Kind)
			for _, c := range onPgx {
				t.Run(c.name, func(t *testing.T) { guaranteed(t, e, c, pgxTest) })
			}
			for _, c := range onSQL {
				t.Run(c.name, func(t *testing.T) { guaranteed(t, e, c, sqlTest) })
			}
		})
	}
}

// guaranteed runs every guarantee for one line of the table.
func guaranteed[Tx any](t *testing.T, e *engine, c client[Tx],
	test func(guarantee) func(*testing.T, *engine, client[Tx]),
) {
	for _, g := range guarantees {
		t.Run(g.says, func(t *testing.T) { test(g)(t, e, c) })
	}
}

func pgxTest(g guarantee) func(*testing.T, *engine, client[pgx.Tx]) { return g.pgx }

func sqlTest(g guarantee) func(*testing.T, *engine, client[*sql.Tx]) { return g.sql }
