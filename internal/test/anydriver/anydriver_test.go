package anydriver

import (
	"database/sql"
	"slices"
	"testing"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/guarantees"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

func TestMain(m *testing.M) { testbed.Main(m, servers.Kinds()) }

// guarantee is one of lock_test.go's, in words of its own.
type guarantee struct {
	says    string
	show    func(*testing.T, *testbed.Engine, testbed.Client[*sql.Tx])
	watched bool // needs to see the end of an idle connection
}

// sideBySide are the guarantees that rest on what a client library does. The usual tier shows them
// all on lib/pq, and some of them on wrappers.
var sideBySide = []guarantee{
	{"at most one session holds a key", guarantees.OneHolder[*sql.Tx], false},
	{"no update is lost under Do", guarantees.NoLostUpdate[*sql.Tx], false},
	{"a try misses what is held and takes what is free", guarantees.Tries[*sql.Tx], false},
	{"of several tries of one key at once exactly one wins", guarantees.OneTryWins[*sql.Tx], false},
	{"rows of the caller's own table are locked, and no others", guarantees.OwnRows[*sql.Tx], false},
	{"keys of any bytes and any length work", guarantees.StrangeKeys[*sql.Tx], false},
	{"values of any type and any text name their row", guarantees.StrangeValues[*sql.Tx], false},
	{"several keys are locked together, duplicates once", guarantees.SeveralKeys[*sql.Tx], false},
	{"opposite orders of keys never deadlock", guarantees.OppositeOrders[*sql.Tx], false},
	{"up to 256 keys or rows are locked at once, and no others", guarantees.ManyKeys[*sql.Tx], false},
	{"thirty waiters are served in the order in which they queued", guarantees.ServedInOrder[*sql.Tx], false},
	{"a try does not overtake a waiter", guarantees.TryBehindWaiter[*sql.Tx], false},
	{"a cancelled wait ends at once and leaves the queue", guarantees.CancelledWait[*sql.Tx], false},
	{"a deadline of the context ends the wait and not the hold", guarantees.DeadlineOfContext[*sql.Tx], false},
	{"Within ends the wait, for every verb", guarantees.Within[*sql.Tx], false},
	{"a waiter that gives up does not disturb the next one", guarantees.MiddleWaiterLeaves[*sql.Tx], false},
	{"LockTx holds until the caller's transaction ends", guarantees.LockTxHolds[*sql.Tx], false},
	{
		"the caller's transaction stays usable after a missed try, a timeout, a cancel",
		guarantees.CallersTransaction[*sql.Tx], false,
	},
	{"the caller's settings are what they were", guarantees.CallersSettings[*sql.Tx], false},
	{"no setting outlives a transaction of ours, however that ends", guarantees.SettingsEnd[*sql.Tx], false},
	{"a transaction that would read stale data is refused", guarantees.StaleSnapshot[*sql.Tx], false},
	{"a transaction of the caller's that has ended is an error", guarantees.EndedTransaction[*sql.Tx], false},
	{"Do commits on success and rolls back on an error, a panic and Goexit", guarantees.DoEnds[*sql.Tx], false},
	{"work that ends its own transaction is not committed without the lock", guarantees.SelfEnded[*sql.Tx], false},
	{"work that swallows a deadlock is not committed", guarantees.SwallowedDeadlock[*sql.Tx], false},
	{
		"work that swallows a failed statement is not reported as done when it is not",
		guarantees.SwallowedError[*sql.Tx], false,
	},
	{"a connection killed in the middle is an error, from every verb", guarantees.KilledConnection[*sql.Tx], false},
	{"a connection cut by the network is an error, and bounded in time", guarantees.CutConnection[*sql.Tx], false},
	{"a context that ends in the work prevents the commit", guarantees.ContextEndsInWork[*sql.Tx], false},
	{"Do reads what the last holder wrote", guarantees.ReadsCurrent[*sql.Tx], false},
	{"Exec commits all of its statements together", guarantees.ExecCommits[*sql.Tx], false},
	{"Exec does not sell what is not there", guarantees.ExecSells[*sql.Tx], false},
	{"a statement that the server cannot count is counted", guarantees.ExecStrange[*sql.Tx], false},
	{"Exec that fails commits nothing, and says which statement", guarantees.ExecFails[*sql.Tx], false},
	{"an argument of Exec means what it means in the work of a Do", guarantees.ExecArguments[*sql.Tx], false},
	{"an argument of Exec that panics costs no connection", guarantees.ExecPanics[*sql.Tx], false},
	{"Into has the first row of a statement", guarantees.ExecReturns[*sql.Tx], false},
	{
		"a statement behind an Into has for its argument what that was filled with",
		guarantees.ExecPassesOn[*sql.Tx], false,
	},
	{"Exec waits like a Do", guarantees.ExecWaits[*sql.Tx], false},
	{"Exec in the work of a Do is part of its transaction", guarantees.ExecNested[*sql.Tx], false},
	{"what comes behind a COMMIT among the statements is not committed", guarantees.ExecSelfEnded[*sql.Tx], false},
	{"there is no false alarm, and Unlock is none", guarantees.NoFalseAlarm[*sql.Tx], false},
	{
		"a transaction that ended behind the back of its session is a loss, by the next heartbeat",
		guarantees.RolledBack[*sql.Tx], false,
	},
	{"the lease is kept, on both sides", guarantees.LeaseKept[*sql.Tx], true},
	{"the log tells of a loss, and is silent otherwise", guarantees.Logged[*sql.Tx], true},
	{"tokens increase over all holders", guarantees.TokensIncrease[*sql.Tx], false},
	{"a new run of the server is numbered once, above all before", guarantees.NewRun[*sql.Tx], false},
	{"fencing that is not installed is ErrNotInstalled", guarantees.FenceMissing[*sql.Tx], false},
	{"reentry follows the context, counts, and ends with the last Lock", guarantees.Reentry[*sql.Tx], false},
	{"nested locks need one connection", guarantees.OneConnection[*sql.Tx], false},
	{"a nested Do is a savepoint", guarantees.NestedDo[*sql.Tx], false},
	{
		"a call beside a nested Do, or in it with the wrong context, is refused at once",
		guarantees.BesideNestedDo[*sql.Tx], false,
	},
	{"what a failed nested Do has locked is not believed in", guarantees.UndoneLocks[*sql.Tx], false},
	{"a nested wait that ends leaves the outer lock held", guarantees.NestedWaitEnds[*sql.Tx], false},
	{"a nested deadlock is an error and never a silent loss", guarantees.NestedDeadlock[*sql.Tx], false},
	{
		"goroutines that share the context of a Lock take turns, of two calls in a Do the second is an error",
		guarantees.SharedContext[*sql.Tx], false,
	},
	{"an order that makes its batch fail takes no other with it", guarantees.CombinedCulprit[*sql.Tx], false},
	{"a lost session is an error to all of its batch", guarantees.CombinedLost[*sql.Tx], true},
	{"one leads an election at a time, and terms increase", guarantees.OneLeader[*sql.Tx], false},
	{"an election without its table is ErrNotInstalled", guarantees.ElectionInstalled[*sql.Tx], false},
	{"Unlock works on a cancelled context, once", guarantees.Unlock[*sql.Tx], false},
	{"Close ends what is held", guarantees.Closing[*sql.Tx], false},
	{"Inspect shows the holder and the waiters, in their order", guarantees.InspectShows[*sql.Tx], false},
	{"Inspect shows joined keys, and nothing that was released", guarantees.InspectNested[*sql.Tx], false},
	{"Inspect shows locks in callers' transactions, and rows of their tables", guarantees.InspectTx[*sql.Tx], false},
	{"Break ends the holder that was shown, and no other", guarantees.Breaks[*sql.Tx], true},
	{"a nested wait ends without a loss, however far away the server is", guarantees.NestedWaitFarAway[*sql.Tx], false},
	{"a full pool is an error in time", guarantees.FullPool[*sql.Tx], false},
	{"broken sessions and panics leave nobody waiting", guarantees.QueueForgetsNobody[*sql.Tx], false},
	{"after any error the pool has its connections back, clean", guarantees.CleanPool[*sql.Tx], false},
	{"ten replicas install at once", guarantees.InstallTogether[*sql.Tx], false},
	{"Install completes a half-seeded table", guarantees.InstallAgain[*sql.Tx], false},
	{
		"a table that is missing, incomplete or of another shape is ErrNotInstalled",
		guarantees.NotInstalled[*sql.Tx], false,
	},
	{"clients that disagree on the number of slots get an error", guarantees.SlotsChanged[*sql.Tx], false},
	{"bad input is an error and changes nothing", guarantees.BadInput[*sql.Tx], false},
	{"Check accepts this engine", guarantees.CheckAccepts[*sql.Tx], false},
	{"work is done once, whoever asks for it", guarantees.OnceEach[*sql.Tx], false},
	{"who comes while the work runs waits, and runs it if it failed", guarantees.OnceWaits[*sql.Tx], false},
	{"work that failed, panicked or lost its session leaves no marker", guarantees.OnceFails[*sql.Tx], false},
	{"in a Do, a marker shares the fate of its work", guarantees.OnceNested[*sql.Tx], false},
	{"work is done once in each window of the database's clock", guarantees.OncePer[*sql.Tx], false},
	{
		"of transactions that mark the same work one is first, and other keys go on",
		guarantees.OnceTx[*sql.Tx], false,
	},
	{"markers are forgotten and swept, and nothing else is", guarantees.OnceForgets[*sql.Tx], false},
	{
		"without its table or with bad input, Once is an error that says what to do",
		guarantees.OnceNotInstalled[*sql.Tx], false,
	},
	{"readers hold a lock together, a writer has it alone", guarantees.SharedTogether[*sql.Tx], false},
	{"the work of those that share commits", guarantees.SharedWork[*sql.Tx], false},
	{
		"readers and writers are served in the order in which they queued",
		guarantees.SharedInOrder[*sql.Tx], false,
	},
	{"an upgrade is refused at once, and nothing is sent", guarantees.Upgrade[*sql.Tx], false},
	{"a shared wait ends and leaves the queue", guarantees.SharedWaitEnds[*sql.Tx], false},
	{"a lost reader is told so, and the others keep the lock", guarantees.SharedLoss[*sql.Tx], true},
	{
		"a nested Do that fails takes nothing from what was shared before",
		guarantees.SharedUndone[*sql.Tx], false,
	},
	{"shared locks have tokens like others", guarantees.SharedTokens[*sql.Tx], false},
	{"Inspect shows all readers, and Break ends one of them", guarantees.InspectReaders[*sql.Tx], true},
	{
		"a semaphore lets n in and never one more, whichever process they are of",
		guarantees.SemaphoreBound[*sql.Tx], false,
	},
	{
		"waiters of a semaphore are served in order, in the process and at the server",
		guarantees.SemaphoreOrder[*sql.Tx], false,
	},
	{
		"each verb takes one permit of a semaphore, and a session never a second one",
		guarantees.SemaphoreVerbs[*sql.Tx], false,
	},
	{
		"the death of a semaphore's holder, or of its first waiter, lets the next one go on",
		guarantees.SemaphoreDeath[*sql.Tx], false,
	},
	{
		"waits for a permit that end at any moment leave nothing behind",
		guarantees.SemaphoreCancelled[*sql.Tx], false,
	},
	{
		"many waiters of a semaphore take a connection of each process, and send little",
		guarantees.SemaphoreCosts[*sql.Tx], false,
	},
	{
		"Inspect shows who holds the permits of a semaphore, and Break ends the one that is named",
		guarantees.SemaphoreInspected[*sql.Tx], false,
	},
	{
		"Inspect shows who leads an election and who campaigns, and Break ends the leader",
		guarantees.InspectElections[*sql.Tx], true,
	},
}

// alone are those whose neighbours would disturb them. The last one ends the run of tokens of a
// whole server of MySQL or MariaDB.
var alone = []guarantee{
	{"tight loops are served in order, and nobody starves", guarantees.TightLoops[*sql.Tx], false},
	{"a cancel that races with the grant leaks nothing", guarantees.CancelRace[*sql.Tx], false},
	{
		"a cancel that races with the grant leaves the caller's transaction usable",
		guarantees.GuestCancelRace[*sql.Tx], false,
	},
	{"a lost session is announced at once, to the Lock and in the work", guarantees.LossAnnounced[*sql.Tx], true},
	{"a leader that is lost is told before the next leads", guarantees.LostLeader[*sql.Tx], true},
	{"a nested Do that outlives its Do is undone", guarantees.NestedDoLeftBehind[*sql.Tx], true},
	{"a run of the server whose counts are spent is followed by another", guarantees.SpentRun[*sql.Tx], false},
}

// line is an engine, a client, and what it shows.
type line struct {
	engine            *testbed.Engine
	client            testbed.Client[*sql.Tx]
	sideBySide, alone []guarantee
}

// lines are all engines and clients in the full tier. The usual one has lib/pq on the newest
// PostgreSQL, some guarantees on bun's driver, and otelsql around pgx and around
// go-sql-driver/mysql. Both have lib/pq through a pooler.
func lines(t *testing.T) (lines []line) {
	for _, e := range testbed.Engines {
		openings, newDriver := MySQL, onMySQL
		if e.Postgres {
			openings, newDriver = Postgres, onPostgres
		}
		for _, o := range openings {
			if tier.Full() || usual[e.Kind] == o.Name || e.Kind == servers.Postgres18 && o.Name == "pgdriver of bun" {
				lines = append(lines, lineOf(e, o, newDriver, tier.Full() || o.Name == "lib pq"))
			}
		}
	}
	return append(lines, pooled(t)...)
}

// lineOf has all guarantees that hold on a client, or those of onWrappers.
func lineOf(e *testbed.Engine, o Opening, newDriver func(*sql.DB) dialects.Driver[*sql.Tx], all bool) line {
	left := func(g guarantee) bool {
		if o.Name == "pgdriver of bun" && slices.Contains(closes, g.says) {
			return true
		}
		return o.Unseen && g.watched || !all && !slices.Contains(onWrappers, g.says)
	}
	c := testbed.SQLOnPool(o.Name, o.Open, newDriver)
	c.Unguarded = e.Postgres && o.Name != "otelsql around pgx"
	return line{
		e, c,
		slices.DeleteFunc(slices.Clone(sideBySide), left), slices.DeleteFunc(slices.Clone(alone), left),
	}
}

// closes are the guarantees that bun's driver does not keep: it closes its connection behind a
// statement that was cancelled, that found its transaction aborted, or whose arguments are not as
// many as it wants. A quote in a comment misleads it. A wait with a limit is cancelled where the
// server, on a busy machine, is late to end it.
var closes = []string{
	"a cancelled wait ends at once and leaves the queue",
	"a shared wait ends and leaves the queue",
	"a deadline of the context ends the wait and not the hold",
	"Within ends the wait, for every verb",
	"the caller's transaction stays usable after a missed try, a timeout, a cancel",
	"work that swallows a failed statement is not reported as done when it is not",
	"work that swallows a deadlock is not committed",
	"Exec that fails commits nothing, and says which statement",
	"a statement that the server cannot count is counted",
	"the lease is kept, on both sides",
}

// pooled are clients without pgx, each through a pooler of its own. That gives a session to one
// client after the other.
func pooled(t *testing.T) (lines []line) {
	for _, o := range Postgres {
		if o.Name == "lib pq" || o.Name == "opaque around lib pq" && tier.Full() {
			lines = append(lines, lineOf(testbed.PgBouncer(t), o, onPostgres, tier.Full()))
		}
	}
	return lines
}

// usual are the lines of the usual tier.
var usual = map[servers.Kind]string{
	servers.Postgres15: "otelsql around pgx",
	servers.Postgres18: "lib pq",
	servers.MySQL:      "otelsql around mysql",
}

// onWrappers are the guarantees that the usual tier shows on wrappers.
var onWrappers = []string{
	"at most one session holds a key",
	"a try misses what is held and takes what is free",
	"a cancelled wait ends at once and leaves the queue",
	"Within ends the wait, for every verb",
	"the caller's transaction stays usable after a missed try, a timeout, a cancel",
	"Do commits on success and rolls back on an error, a panic and Goexit",
	"work that ends its own transaction is not committed without the lock",
	"work that swallows a failed statement is not reported as done when it is not",
	"a connection killed in the middle is an error, from every verb",
	"a transaction that ended behind the back of its session is a loss, by the next heartbeat",
	"a nested Do is a savepoint",
	"Break ends the holder that was shown, and no other",
	"after any error the pool has its connections back, clean",
}

func onPostgres(db *sql.DB) dialects.Driver[*sql.Tx] { return postgres.NewSQL(db) }
func onMySQL(db *sql.DB) dialects.Driver[*sql.Tx]    { return mysql.New(db) }

func TestGuarantees(t *testing.T) {
	lines := lines(t)
	t.Run("alone", func(t *testing.T) {
		for _, l := range lines {
			t.Run(l.engine.Name+" "+l.client.Name, func(t *testing.T) {
				for _, g := range l.alone {
					t.Run(g.says, func(t *testing.T) {
						testbed.NoGoroutines(t)
						g.show(t, l.engine, l.client)
					})
				}
			})
		}
	})
	t.Run("side by side", func(t *testing.T) {
		for _, l := range lines {
			t.Run(l.engine.Name+" "+l.client.Name, func(t *testing.T) {
				t.Parallel()
				for _, g := range l.sideBySide {
					t.Run(g.says, func(t *testing.T) {
						if !l.engine.Pooled { // some spoil sessions, which the next client gets
							t.Parallel()
						}
						g.show(t, l.engine, l.client)
					})
				}
			})
		}
	})
}
