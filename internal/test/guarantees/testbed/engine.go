// Package testbed is what the tests of the guarantees run on: real servers, clients of each kind,
// and fixtures with keys and tables of their own.
package testbed

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/leaks"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// Engine is a running server, and how a test asks it what only the server knows.
type Engine struct {
	*servers.Server
	Admin    *sql.DB
	Postgres bool
	MariaDB  bool
	Further  bool // of a version that the full tier adds
	Pooled   bool // through a pooler, which has connections of its own to the server
	Pgpool   bool // the pooler is pgpool-II, which has a session for each client, and answers cancels late
	Tells    bool // shows what an idle session says of itself

	nodes    []*Engine    // of a cluster, if it is one, this one among them
	fixtures atomic.Int64 // that have connected: see node

	install sync.Once // of the lock table that all fixtures share
	census  *census
	views   *rested // InnoDB's, which serve an old picture when read again within 100 ms
}

// PollEvery is how often a test asks when no event tells it.
const PollEvery = 5 * time.Millisecond

// Engines are the servers that Main has started.
var Engines []*Engine

// Main runs the tests of a package on a server of each of these kinds, and in the full tier also on
// further ones. It is what a TestMain calls.
func Main(m *testing.M, kinds []servers.Kind, further ...servers.Kind) {
	if part := os.Getenv(partVariable); part != "" {
		os.Exit(playPart(part))
	}
	flag.Parse() // the tier depends on -short
	kinds = slices.Concat(tier.Pick(nil, nil, further), kinds)
	os.Exit(servers.RunOn(kinds, func(server *servers.Server) (io.Closer, error) {
		fmt.Printf("%s: %s\n", server.Name, server.Origin)
		e, err := NewEngine(server)
		if err != nil {
			return nil, err
		}
		Engines = append(Engines, e)
		return e.Admin, nil
	}, func() int {
		unavoidable = goleak.IgnoreCurrent()
		code := m.Run()
		if err := leftBehind(unavoidable); code == 0 && err != nil {
			fmt.Fprintln(os.Stderr, "behind all tests:", err)
			code = 1
		}
		return code
	}))
}

// unavoidable are goroutines that nobody looks for behind all tests.
var unavoidable goleak.Option

// NoGoroutines checks after the test and its later cleanups that no goroutine is left, but for
// those in these functions, which the test cannot end. No other test may run beside it.
func NoGoroutines(t *testing.T, except ...string) {
	t.Helper()
	t.Setenv("TXLOCK_TEST_RUNS_ALONE", "yes") // panics in a parallel test
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		require.NoError(t, leftBehind(before, except...))
		if len(except) > 0 {
			unavoidable = goleak.IgnoreCurrent()
		}
	})
}

func leftBehind(before goleak.Option, except ...string) error {
	options := []goleak.Option{before}
	for _, function := range append(except, "github.com/txlock/txlock/internal/test/wire.(*Proxy).forward",
		// of a server that the test restarted
		"github.com/txlock/txlock/internal/test/servers.launch.func1", "os/exec.(*Cmd).writerDescriptor.func1") {
		options = append(options, goleak.IgnoreAnyFunction(function))
	}
	return leaks.FindBesidesPools(options...)
}

// NewEngine connects to a server as its administrator.
func NewEngine(server *servers.Server) (*Engine, error) {
	e := &Engine{
		Server: server, Postgres: server.Kind.Postgres(), MariaDB: server.Kind.MariaDB(),
		Further: slices.Contains(servers.Further(), server.Kind), Tells: !server.Kind.MariaDB(),
	}
	driverName := "mysql"
	if e.Postgres {
		driverName = "pgx"
	}
	var err error
	if e.Admin, err = sql.Open(driverName, server.DSN); err != nil {
		return nil, err
	}
	e.Admin.SetMaxOpenConns(8)
	e.Admin.SetMaxIdleConns(8)
	e.views = &rested{pause: 120 * time.Millisecond}
	e.census = &census{admin: e.Admin, views: e.views, query: `
		SELECT p.db, SUM(x.trx_state = 'LOCK WAIT'), COUNT(*)
		FROM information_schema.innodb_trx x
		JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id
		WHERE p.db IS NOT NULL GROUP BY p.db`}
	if server.Kind == servers.MySQL { // whose processlist locks all sessions, and warns
		e.census.query = `
		SELECT t.PROCESSLIST_DB, SUM(x.trx_state = 'LOCK WAIT'), COUNT(*)
		FROM information_schema.innodb_trx x
		JOIN performance_schema.threads t ON t.PROCESSLIST_ID = x.trx_mysql_thread_id
		WHERE t.PROCESSLIST_DB IS NOT NULL GROUP BY t.PROCESSLIST_DB`
	}
	if e.Postgres {
		// Autovacuum locks a catalog for a moment when it gives the end of it back. Who looks
		// something up there, the lock table say, does not wait for a lock of the test's.
		e.census = &census{admin: e.Admin, views: &rested{pause: 50 * time.Millisecond}, query: `
		SELECT split_part(application_name, '#', 1),
			COUNT(*) FILTER (WHERE wait_event_type = 'Lock' AND NOT (wait_event = 'relation' AND EXISTS (
				SELECT FROM pg_locks l WHERE l.pid = a.pid AND NOT granted AND relation < 16384))),
			COUNT(*) FILTER (WHERE xact_start IS NOT NULL OR state = 'idle in transaction (aborted)')
		FROM pg_stat_activity a GROUP BY 1`}
	}
	return e, nil
}

// DSNFor is the DSN of a fixture. The label names it on the server: as the application on
// PostgreSQL, as the database on MySQL and MariaDB.
func (e *Engine) DSNFor(label, address string, parameters url.Values) string {
	if e.Postgres {
		u, err := url.Parse(e.DSN)
		if err != nil {
			panic(err)
		}
		query := u.Query()
		query.Set("application_name", label)
		for name, values := range parameters {
			query.Set(name, values[0])
		}
		u.RawQuery = query.Encode()
		if address != "" {
			u.Host = address
		}
		return u.String()
	}
	dsn, query, _ := strings.Cut(e.DSN, "?")
	dsn = dsn[:strings.LastIndexByte(dsn, '/')+1] + label
	if address != "" {
		dsn = mysqlAddress.ReplaceAllString(dsn, "("+address+")")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		panic(err)
	}
	for name, value := range parameters {
		values[name] = value
	}
	if len(values) > 0 {
		dsn += "?" + values.Encode()
	}
	return dsn
}

var mysqlAddress = regexp.MustCompile(`\([^)]*\)`)

// Table is the lock table as every fixture spells it.
func (e *Engine) Table() string {
	if e.Postgres {
		return "public.txlock_slots"
	}
	dsn, _, _ := strings.Cut(e.DSN, "?")
	return dsn[strings.LastIndexByte(dsn, '/')+1:] + ".txlock_slots"
}

// AsAdmin runs a statement as the administrator.
func (e *Engine) AsAdmin(t *testing.T, query string) {
	t.Helper()
	database.Exec(t, e.Admin, query)
	for _, other := range e.nodes {
		var one int // which waits until the node has what the query did
		require.NoError(t, other.Admin.QueryRow("SELECT 1").Scan(&one))
	}
}

// RefusesOldSnapshots says whether a transaction that locks a row which has changed since its
// snapshot gets error 1020 and is rolled back: MariaDB, since 11.6 by default.
func (e *Engine) RefusesOldSnapshots(t *testing.T) (refuses bool) {
	t.Helper()
	if e.MariaDB {
		require.NoError(t, e.Admin.QueryRow("SELECT @@innodb_snapshot_isolation").Scan(&refuses))
	}
	return refuses
}

// RunOf is the number of the server's run in a token.
func RunOf(token int64) int64 { return token >> 40 }

// TableOf is a table beside the lock table.
func TableOf(e *Engine, name string) string {
	return e.Table()[:len(e.Table())-len("txlock_slots")] + name
}

var background = context.Background()

// Own is an engine on a server of the test's own, with these settings. The test may kill it. Tests
// skip the kinds whose servers are given by address: those must not be killed.
func Own(t *testing.T, kind servers.Kind, settings ...string) *Engine {
	t.Helper()
	server := must.Get(servers.Start(background, kind, servers.Options{Settings: settings}))(t)
	return Owned(t, server)
}

// Owned is the engine of a server that ends with the test.
func Owned(t *testing.T, server *servers.Server) *Engine {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	e := must.Get(NewEngine(server))(t)
	t.Cleanup(func() { _ = e.Admin.Close() })
	return e
}

// Given says that somebody gave the server by address: the tests must not kill it, nor start others
// of its kind.
func (e *Engine) Given() bool { return strings.HasPrefix(e.Origin, "given") }

// EachOpened runs a test with the library's own pools, on all engines side by side.
func EachOpened(t *testing.T, onPgx func(*testing.T, *Engine, Client[pgx.Tx]),
	onSQL func(*testing.T, *Engine, Client[*sql.Tx]),
) {
	t.Helper()
	t.Parallel()
	Each(t, Engines, func(t *testing.T, e *Engine) {
		if e.Postgres {
			onPgx(t, e, PgxOpened())
		} else {
			onSQL(t, e, MySQLOpened())
		}
	})
}

// Each runs a test on each of the engines, side by side.
func Each(t *testing.T, engines []*Engine, test func(*testing.T, *Engine)) {
	t.Helper()
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

// EnginesWhere are the engines for which is returns true.
func EnginesWhere(is func(*Engine) bool) []*Engine {
	return slices.DeleteFunc(slices.Clone(Engines), func(e *Engine) bool { return !is(e) })
}

// AllPostgres are the engines that are PostgreSQL.
func AllPostgres() []*Engine { return EnginesWhere(func(e *Engine) bool { return e.Postgres }) }

// AllMySQL are the engines that are MySQL or MariaDB.
func AllMySQL() []*Engine { return EnginesWhere(func(e *Engine) bool { return !e.Postgres }) }
