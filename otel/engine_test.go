package txlockotel_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/servers"
)

var background = context.Background()

// label marks this run on the servers. On PostgreSQL it is the application name, after which txlock
// shows what it locks. On MySQL and MariaDB it is the database.
var label = fmt.Sprintf("txlock_otel_%d", os.Getpid())

// idle is how many idle connections the tests' pool keeps.
const idle = 4

// engine is a running server, with a query for its waiters.
type engine struct {
	*servers.Server
	postgres  bool
	admin     *sql.DB
	db        *sql.DB // the tests' pool
	queued    string
	pollEvery time.Duration
	asked     time.Time // when the waiters were last queried
}

var engines []*engine

func TestMain(m *testing.M) {
	kinds := []servers.Kind{servers.Postgres(), servers.MySQL, servers.MariaDB}
	os.Exit(servers.RunOn(kinds, func(server *servers.Server) (io.Closer, error) {
		e, err := newEngine(server)
		if e == nil {
			return nil, err
		}
		engines = append(engines, e)
		return e, err
	}, m.Run))
}

// newEngine may return an engine together with an error. The caller closes it.
func newEngine(server *servers.Server) (e *engine, err error) {
	e = &engine{Server: server, pollEvery: 2 * time.Millisecond}
	driverName := "mysql"
	switch server.Kind {
	case servers.MySQL:
		e.queued = `SELECT COUNT(DISTINCT w.REQUESTING_THREAD_ID) FROM performance_schema.data_lock_waits w
			JOIN performance_schema.threads t ON t.THREAD_ID = w.REQUESTING_THREAD_ID WHERE t.PROCESSLIST_DB = ?`
	case servers.MariaDB:
		e.queued = `SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p
			ON p.id = x.trx_mysql_thread_id WHERE p.db = ? AND x.trx_state = 'LOCK WAIT'`
		e.pollEvery = 120 * time.Millisecond // InnoDB's view serves an old picture if asked more often
	default:
		driverName, e.postgres = "pgx", true
		e.queued = "SELECT COUNT(*) FROM pg_stat_activity WHERE starts_with(application_name, $1) AND " +
			"wait_event_type = 'Lock'"
	}
	if e.admin, err = sql.Open(driverName, server.DSN); err != nil {
		return nil, err
	}
	if !e.postgres {
		if _, err := e.admin.Exec("CREATE DATABASE " + label); err != nil {
			return e, err
		}
	}
	if e.db, err = sql.Open(driverName, e.dsn()); err != nil {
		return e, err
	}
	e.db.SetMaxIdleConns(idle)
	return e, e.locker().Install(background)
}

// dsn is the server's DSN with the label.
func (e *engine) dsn() string {
	if !e.postgres {
		address, query, _ := strings.Cut(e.DSN, "?")
		return address[:strings.LastIndexByte(address, '/')+1] + label + "?" + query
	}
	u, err := url.Parse(e.DSN)
	if err != nil {
		panic(err)
	}
	query := u.Query()
	query.Set("application_name", label)
	u.RawQuery = query.Encode()
	return u.String()
}

func (e *engine) Close() error {
	if e.db != nil {
		_ = e.db.Close()
	}
	if !e.postgres {
		// A failed test may have left a transaction open.
		ctx, cancel := context.WithTimeout(background, 5*time.Second)
		defer cancel()
		_, _ = e.admin.ExecContext(ctx, "DROP DATABASE IF EXISTS "+label)
	}
	return e.admin.Close()
}

func (e *engine) locker(options ...txlock.Option) *txlock.Locker[*sql.Tx] {
	var driver dialects.Driver[*sql.Tx] = mysql.New(e.db)
	if e.postgres {
		driver = postgres.NewSQL(e.db)
	}
	return txlock.New(driver, options...)
}

// waiters waits until n of our sessions wait for a lock.
func (e *engine) waiters(t *testing.T, n int) {
	t.Helper()
	<-time.After(time.Until(e.asked.Add(e.pollEvery)))
	eventually.Every(t, fmt.Sprintf("%d waiters", n), e.pollEvery, func() bool {
		var now int
		e.asked = time.Now()
		require.NoError(t, e.admin.QueryRow(e.queued, label).Scan(&now))
		return now == n
	})
}

// killSessions ends all of our sessions, as an administrator does. It leaves none of them in the
// pool.
func (e *engine) killSessions(t *testing.T) {
	t.Helper()
	sessions, kill := "SELECT id FROM information_schema.processlist WHERE db = ?", "KILL %d"
	if e.postgres {
		sessions, kill = "SELECT pid FROM pg_stat_activity WHERE starts_with(application_name, $1)",
			"SELECT pg_terminate_backend(%d)"
	}
	ids := func() []int { return database.Column[int](t, e.admin, sessions, label) }
	for _, id := range ids() {
		_, _ = e.admin.Exec(fmt.Sprintf(kill, id)) // or it had already ended
	}
	eventually.Every(t, "the sessions are gone", 2*time.Millisecond, func() bool { return len(ids()) == 0 })
	e.db.SetMaxIdleConns(0)
	e.db.SetMaxIdleConns(idle)
}

// onEveryEngine runs a test on all servers at the same time. Tests on the same server run one after
// the other.
func onEveryEngine(t *testing.T, test func(*testing.T, *engine)) {
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}
