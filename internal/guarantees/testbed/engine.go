// Package testbed is what the tests of the guarantees run on: real servers, clients of each kind, and
// fixtures with keys and tables of their own.
package testbed

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/servers"
)

// engine is a running server, and how a test asks it what only the server knows.
type Engine struct {
	*servers.Server
	Admin    *sql.DB
	install  sync.Once // of the lock table that all fixtures share
	Postgres bool
	Pooled   bool // through a pooler, which has connections of its own to the server
	Tells    bool // shows what an idle session says of itself
	// queued counts the waiters of the fixture that label names; exact, but on MariaDB up to 100 ms
	// old.
	Queued string
	// sessions counts the fixture's sessions that are in a transaction.
	sessions string
	// pollEvery is how often a test asks the server who waits.
	PollEvery time.Duration
	Views     rested
}

// rested is for InnoDB's views, which go on serving an old picture as long as anybody asks again
// within 100 ms.
type rested struct {
	mu   sync.Mutex
	last time.Time
}

// ask calls query when nobody has asked for long enough.
func (r *rested) Ask(query func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	<-time.After(time.Until(r.last.Add(120 * time.Millisecond)))
	query()
	r.last = time.Now()
}

var Engines []*Engine

// Main runs the tests of a package on a server of each kind. It is what a TestMain calls.
func Main(m *testing.M) {
	if part := os.Getenv(partVariable); part != "" {
		os.Exit(playPart(part))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return servers.RunOn(ctx, servers.Kinds(), func(server *servers.Server) (io.Closer, error) {
		fmt.Printf("%s: %s\n", server.Name, server.Origin)
		e, err := NewEngine(server)
		if err != nil {
			return nil, err
		}
		Engines = append(Engines, e)
		return e.Admin, nil
	}, m.Run)
}

func NewEngine(server *servers.Server) (*Engine, error) {
	e := &Engine{Server: server, PollEvery: 2 * time.Millisecond, Tells: server.Kind != servers.MariaDB}
	driverName := "mysql"
	switch server.Kind {
	case servers.MySQL:
		e.Queued = `SELECT COUNT(DISTINCT w.REQUESTING_THREAD_ID) FROM performance_schema.data_lock_waits w
			JOIN performance_schema.threads t ON t.THREAD_ID = w.REQUESTING_THREAD_ID WHERE t.PROCESSLIST_DB = ?`
		e.sessions = `SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN performance_schema.threads t
			ON t.PROCESSLIST_ID = x.trx_mysql_thread_id WHERE t.PROCESSLIST_DB = ?`
	case servers.MariaDB:
		e.Queued = `SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p
			ON p.id = x.trx_mysql_thread_id WHERE p.db = ? AND x.trx_state = 'LOCK WAIT'`
		e.sessions = `SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p
			ON p.id = x.trx_mysql_thread_id WHERE p.db = ?`
	default:
		driverName = "pgx"
		e.Postgres = true
		e.Queued = `SELECT COUNT(*) FROM pg_stat_activity WHERE split_part(application_name, '#', 1) = $1 AND wait_event_type = 'Lock'`
		e.sessions = `SELECT COUNT(*) FROM pg_stat_activity WHERE split_part(application_name, '#', 1) = $1 AND xact_start IS NOT NULL`
	}
	var err error
	if e.Admin, err = sql.Open(driverName, server.DSN); err != nil {
		return nil, err
	}
	e.Admin.SetMaxOpenConns(4)
	e.Admin.SetMaxIdleConns(4)
	return e, nil
}

// label names a fixture on the server: its application on PostgreSQL, its database on MySQL and
// MariaDB.
func (e *Engine) Dsn(label, address string, parameters url.Values) string {
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

// address is where the server listens.
func (e *Engine) Address() string {
	if e.Postgres {
		u, err := url.Parse(e.DSN)
		if err != nil {
			panic(err)
		}
		return u.Host
	}
	return strings.Trim(mysqlAddress.FindString(e.DSN), "()")
}

// table is the lock table as every fixture spells it.
func (e *Engine) Table() string {
	if e.Postgres {
		return "public.txlock_slots"
	}
	dsn, _, _ := strings.Cut(e.DSN, "?")
	return dsn[strings.LastIndexByte(dsn, '/')+1:] + ".txlock_slots"
}

// admitted runs a statement as the administrator.
func (e *Engine) Admitted(t *testing.T, query string) {
	t.Helper()
	_, err := e.Admin.Exec(query)
	require.NoError(t, err)
}

// runOf is the number of the server's run in a token.
func RunOf(token int64) int64 { return token >> 40 }

// tableOf is a table beside the lock table.
func TableOf(e *Engine, name string) string {
	return e.Table()[:len(e.Table())-len("txlock_slots")] + name
}

var background = context.Background()
