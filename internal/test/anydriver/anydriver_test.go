package anydriver

import (
	"database/sql"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/guarantees"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

func TestMain(m *testing.M) { testbed.Main(m, servers.Kinds()) }

// guarantee is one of lock_test.go's. Its function has its name.
type guarantee func(*testing.T, *testbed.Engine, testbed.Client[*sql.Tx])

func (g guarantee) name() string {
	_, name, _ := strings.Cut(runtime.FuncForPC(reflect.ValueOf(g).Pointer()).Name(), "/guarantees.")
	return strings.TrimSuffix(name, "[...]")
}

// sideBySide are the guarantees that rest on what a client library does: how it sends values and
// reads them, cancels, begins and ends a transaction, and loses a connection. The usual tier shows
// them all on lib/pq, and some of them on wrappers.
var sideBySide = []guarantee{
	guarantees.OneHolder[*sql.Tx], guarantees.NoLostUpdate[*sql.Tx], guarantees.Tries[*sql.Tx],
	guarantees.StrangeKeys[*sql.Tx], guarantees.StrangeValues[*sql.Tx], guarantees.ManyKeys[*sql.Tx],
	guarantees.CancelledWait[*sql.Tx], guarantees.DeadlineOfContext[*sql.Tx], guarantees.Within[*sql.Tx],
	guarantees.LockTxHolds[*sql.Tx], guarantees.CallersTransaction[*sql.Tx], guarantees.CallersSettings[*sql.Tx],
	guarantees.SettingsEnd[*sql.Tx], guarantees.EndedTransaction[*sql.Tx], guarantees.DoEnds[*sql.Tx],
	guarantees.SelfEnded[*sql.Tx], guarantees.SwallowedDeadlock[*sql.Tx], guarantees.SwallowedError[*sql.Tx],
	guarantees.KilledConnection[*sql.Tx], guarantees.CutConnection[*sql.Tx], guarantees.ContextEndsInWork[*sql.Tx],
	guarantees.ExecCommits[*sql.Tx], guarantees.ExecStrange[*sql.Tx], guarantees.ExecFails[*sql.Tx],
	guarantees.ExecArguments[*sql.Tx], guarantees.ExecPanics[*sql.Tx], guarantees.ExecReturns[*sql.Tx],
	guarantees.ExecWaits[*sql.Tx], guarantees.ExecSelfEnded[*sql.Tx], guarantees.RolledBack[*sql.Tx],
	guarantees.LeaseKept[*sql.Tx], guarantees.Logged[*sql.Tx], guarantees.TokensIncrease[*sql.Tx],
	guarantees.NestedDo[*sql.Tx], guarantees.NestedWaitEnds[*sql.Tx], guarantees.CombinedLost[*sql.Tx],
	guarantees.OneLeader[*sql.Tx], guarantees.Unlock[*sql.Tx], guarantees.Closing[*sql.Tx],
	guarantees.InspectShows[*sql.Tx], guarantees.InspectTx[*sql.Tx], guarantees.Breaks[*sql.Tx],
	guarantees.FullPool[*sql.Tx], guarantees.CleanPool[*sql.Tx], guarantees.InstallAgain[*sql.Tx],
	guarantees.NotInstalled[*sql.Tx], guarantees.CheckAccepts[*sql.Tx], guarantees.OnceEach[*sql.Tx],
	guarantees.OnceFails[*sql.Tx], guarantees.OnceTx[*sql.Tx], guarantees.OnceRefused[*sql.Tx],
	guarantees.AnyRowsKeys[*sql.Tx], guarantees.AnyRowsEnd[*sql.Tx], guarantees.AnyRowsRefused[*sql.Tx],
	guarantees.SharedWork[*sql.Tx], guarantees.SharedWaitEnds[*sql.Tx], guarantees.InspectReaders[*sql.Tx],
	guarantees.SemaphoreBound[*sql.Tx], guarantees.SemaphoreCancelled[*sql.Tx], guarantees.InspectElections[*sql.Tx],
}

// alone are those whose neighbours would disturb them. The last one ends the run of tokens of a
// whole server of MySQL or MariaDB.
var alone = []guarantee{
	guarantees.CancelRace[*sql.Tx], guarantees.GuestCancelRace[*sql.Tx], guarantees.LossAnnounced[*sql.Tx],
	guarantees.LostLeader[*sql.Tx], guarantees.SpentRun[*sql.Tx],
}

// watched are those that need to see the end of an idle connection.
var watched = []string{
	"LeaseKept", "Logged", "CombinedLost", "Breaks", "InspectReaders",
	"InspectElections", "LossAnnounced", "LostLeader",
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
		openings, newDriver := openingsOf(e)
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
		if o.Name == "pgdriver of bun" && slices.Contains(closes, g.name()) {
			return true
		}
		return o.Unseen && slices.Contains(watched, g.name()) || !all && !slices.Contains(onWrappers, g.name())
	}
	c := testbed.SQLOnPool(o.Name, o.Open, newDriver)
	c.Unguarded = e.Postgres && o.Name != "otelsql around pgx"
	return line{e, c, slices.DeleteFunc(slices.Clone(sideBySide), left), slices.DeleteFunc(slices.Clone(alone), left)}
}

// closes are the guarantees that bun's driver does not keep: it closes its connection behind a
// statement that was cancelled, that found its transaction aborted, or whose arguments are not as
// many as it wants. A quote in a comment misleads it. A wait with a limit is cancelled where the
// server, on a busy machine, is late to end it.
var closes = []string{
	"CancelledWait", "SharedWaitEnds", "DeadlineOfContext", "Within", "CallersTransaction",
	"SwallowedError", "SwallowedDeadlock", "ExecFails", "ExecStrange", "LeaseKept",
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
	"OneHolder", "Tries", "CancelledWait", "Within", "CallersTransaction", "DoEnds", "SelfEnded",
	"SwallowedError", "KilledConnection", "ExecWaits", "RolledBack", "NestedDo", "Breaks", "CleanPool",
}

func openingsOf(e *testbed.Engine) ([]Opening, func(*sql.DB) dialects.Driver[*sql.Tx]) {
	if e.Postgres {
		return Postgres, onPostgres
	}
	return MySQL, onMySQL
}

func onPostgres(db *sql.DB) dialects.Driver[*sql.Tx] { return postgres.NewSQL(db) }
func onMySQL(db *sql.DB) dialects.Driver[*sql.Tx]    { return mysql.New(db) }

// A name that no guarantee has would leave out nothing, and say nothing.
func TestNamesOfGuarantees(t *testing.T) {
	var names []string
	for _, g := range slices.Concat(sideBySide, alone) {
		names = append(names, g.name())
	}
	for _, name := range slices.Concat(watched, closes, onWrappers) {
		require.Contains(t, names, name)
	}
}

func TestGuarantees(t *testing.T) {
	lines := lines(t)
	t.Run("alone", func(t *testing.T) {
		for _, l := range lines {
			t.Run(l.engine.Name+" "+l.client.Name, func(t *testing.T) {
				for _, g := range l.alone {
					t.Run(g.name(), func(t *testing.T) {
						testbed.NoGoroutines(t)
						g(t, l.engine, l.client)
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
					t.Run(g.name(), func(t *testing.T) {
						if !l.engine.Pooled { // some spoil sessions, which the next client gets
							t.Parallel()
						}
						g(t, l.engine, l.client)
					})
				}
			})
		}
	})
}
