//go:build unix

package main_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/wire"
)

// The tests run the built binary against real servers. Each test has a database of its own, which
// tells its sessions from those of others.

var (
	background = context.Background()
	binary     string // the path of the command
	engines    []*engine
)

// kinds are the servers to test on, one of each system.
var kinds = []servers.Kind{servers.Postgres18, servers.MySQL, servers.MariaDB}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(playRole(role))
	}
	// Under nohup each txlock would inherit an ignored SIGHUP, and rightly leave it ignored. The
	// children of a process that handles a signal get the default.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	ctx, stop := signal.NotifyContext(background, os.Interrupt, syscall.SIGTERM)
	defer stop()
	folder, err := os.MkdirTemp("", "txlock-command")
	if err != nil {
		return complain(err)
	}
	defer os.RemoveAll(folder)
	binary = filepath.Join(folder, "txlock")
	if output, err := exec.CommandContext(ctx, "go", "build", "-race", "-o", binary, ".").CombinedOutput(); err != nil {
		return complain(fmt.Errorf("%w: %s", err, output))
	}
	return servers.RunOn(kinds, func(server *servers.Server) (io.Closer, error) {
		e, err := newEngine(server)
		if err != nil {
			return nil, err
		}
		engines = append(engines, e)
		return e.admin, nil
	}, m.Run)
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// engine is a running server and its administrator's pool.
type engine struct {
	*servers.Server
	admin    *sql.DB
	postgres bool
	queued   string // the query that counts the waiters in a database
	// MariaDB's views serve an old picture as long as somebody asks again within 100 ms.
	inspected sync.Mutex
	asked     time.Time
}

func newEngine(server *servers.Server) (e *engine, err error) {
	e = &engine{Server: server}
	switch server.Kind {
	case servers.MySQL:
		e.queued = `SELECT COUNT(DISTINCT w.REQUESTING_THREAD_ID) FROM performance_schema.data_lock_waits w
			JOIN performance_schema.threads t ON t.THREAD_ID = w.REQUESTING_THREAD_ID WHERE t.PROCESSLIST_DB = ?`
	case servers.MariaDB:
		e.queued = `SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p
			ON p.id = x.trx_mysql_thread_id WHERE p.db = ? AND x.trx_state = 'LOCK WAIT'`
	default:
		e.postgres = true
		e.queued = `SELECT COUNT(*) FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock'`
		e.admin, err = sql.Open("pgx", server.DSN)
		return e, err
	}
	e.admin, err = sql.Open("mysql", server.DSN)
	return e, err
}

// fixture is a database for one test.
type fixture struct {
	*engine
	database string
	url      string   // the URL of the database
	leave    []string // statements to run after the database is dropped
}

var databases atomic.Int64

// newFixture creates a database. It has no lock table: installed adds one.
func newFixture(t *testing.T, e *engine) *fixture {
	t.Helper()
	f := &fixture{engine: e, database: fmt.Sprintf("cmd_%d_%d", os.Getpid(), databases.Add(1))}
	f.url = f.urlWith(t, nil)
	f.do(t, "CREATE DATABASE "+f.database)
	t.Cleanup(func() {
		if e.postgres {
			f.do(t, "DROP DATABASE "+f.database+" WITH (FORCE)")
		} else {
			f.do(t, "DROP DATABASE "+f.database)
		}
		for _, query := range f.leave {
			f.do(t, query)
		}
	})
	return f
}

func installed(t *testing.T, e *engine) *fixture {
	t.Helper()
	f := newFixture(t, e)
	r := f.run(t, "install", "--slots", "512")
	require.Zero(t, r.code, r.stderr)
	return f
}

// onPostgres is the fixture of a test that runs on PostgreSQL alone, in parallel with all others.
func onPostgres(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return installed(t, engines[0])
}

// urlWith is the URL of the fixture's database, for another user unless user is nil.
func (f *fixture) urlWith(t *testing.T, user *url.Userinfo) string {
	t.Helper()
	u := &url.URL{}
	if f.postgres {
		u = must.Get(url.Parse(f.DSN))(t)
	} else {
		config := must.Get(mysql.ParseDSN(f.DSN))(t)
		require.Equal(t, "tcp", config.Net)
		u = &url.URL{Scheme: "mysql", Host: config.Addr, User: url.User(config.User)}
		if config.Passwd != "" {
			u.User = url.UserPassword(config.User, config.Passwd)
		}
	}
	u.Path = "/" + f.database
	if user != nil {
		u.User = user
	}
	return u.String()
}

// proxied sends the fixture's connections through a proxy, with a connect timeout in seconds.
func (f *fixture) proxied(t *testing.T, seconds int) *wire.Proxy {
	t.Helper()
	u := must.Get(url.Parse(f.url))(t)
	proxy := must.Get(wire.Listen(u.Host))(t)
	t.Cleanup(func() { _ = proxy.Close() })
	query := u.Query()
	if f.postgres {
		query.Set("connect_timeout", strconv.Itoa(seconds))
	} else {
		query.Set("timeout", strconv.Itoa(seconds)+"s")
	}
	u.Host, u.RawQuery = proxy.Addr(), query.Encode()
	f.url = u.String()
	return proxy
}

// silent is a network on which nothing arrives. The server keeps the transactions of ended
// processes, with their locks.
var silent = wire.Network{Drop: true}

// do runs a statement as the administrator.
func (f *fixture) do(t *testing.T, query string) {
	t.Helper()
	database.Exec(t, f.admin, query)
}

// createUser creates a user with the name of the database.
func (f *fixture) createUser(t *testing.T, with string, grants ...string) {
	t.Helper()
	f.do(t, "CREATE USER "+f.database+" "+with)
	f.leave = append(f.leave, "DROP USER "+f.database)
	for _, grant := range grants {
		f.do(t, "GRANT "+grant+" TO "+f.database)
	}
}

// waiters waits until the server has exactly n waiters in the fixture's database.
func (f *fixture) waiters(t *testing.T, n int) {
	t.Helper()
	if f.Kind == servers.MariaDB {
		free := f.inspected.TryLock()
		if free {
			f.inspected.Unlock()
		}
		require.False(t, free, "a test that asks who waits begins with oneAtATime")
	}
	eventually.True(t, fmt.Sprintf("%d waiters", n), func() bool {
		if f.Kind == servers.MariaDB {
			<-time.After(time.Until(f.asked.Add(120 * time.Millisecond)))
			defer func() { f.asked = time.Now() }()
		}
		var found int
		require.NoError(t, f.admin.QueryRow(f.queued, f.database).Scan(&found))
		return found == n
	})
}

// killSessions ends all sessions in the fixture's database, as an administrator does.
func (f *fixture) killSessions(t *testing.T) {
	t.Helper()
	query, kill := "SELECT id FROM information_schema.processlist WHERE db = ?", "KILL %s"
	if f.postgres {
		query, kill = "SELECT pid FROM pg_stat_activity WHERE datname = $1", "SELECT pg_terminate_backend(%s)"
	}
	ids := database.Column[string](t, f.admin, query, f.database)
	require.NotEmpty(t, ids)
	for _, id := range ids {
		_, _ = f.admin.Exec(fmt.Sprintf(kill, id)) // or it had already ended
	}
}

// oneAtATime is for tests that ask the server who waits: MariaDB shows an old picture when several
// ask at the same time.
func (e *engine) oneAtATime(t *testing.T) {
	if e.Kind == servers.MariaDB {
		e.inspected.Lock()
		t.Cleanup(e.inspected.Unlock)
	}
}

// each runs a test on every engine, in parallel with all others.
func each(t *testing.T, test func(t *testing.T, e *engine)) {
	t.Parallel()
	for _, e := range engines {
		t.Run(strings.ReplaceAll(e.Name, " ", ""), func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}
