package txlockgocron_test

import (
	"database/sql"
	"fmt"
	"hash/crc32"
	"io"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/servers"
)

// engine is a running server, where jobs record their runs.
type engine struct {
	*servers.Server
	admin    *sql.DB
	postgres bool
	sessions string // the query that counts an instance's sessions in a transaction

	mu    sync.Mutex
	asked time.Time // when sessions last ran; guarded by mu
}

var engines []*engine

func TestMain(m *testing.M) {
	kinds := []servers.Kind{servers.Postgres18, servers.MySQL, servers.MariaDB}
	os.Exit(servers.RunOn(kinds, func(server *servers.Server) (io.Closer, error) {
		e, err := newEngine(server)
		if err != nil {
			return nil, err
		}
		engines = append(engines, e)
		return e.admin, e.prepare()
	}, m.Run))
}

func newEngine(server *servers.Server) (e *engine, err error) {
	e = &engine{Server: server, postgres: server.Kind == servers.Postgres18}
	driver := "mysql"
	e.sessions = `SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p
		ON p.id = x.trx_mysql_thread_id WHERE p.db = ?`
	if e.postgres {
		driver = "pgx"
		e.sessions = "SELECT COUNT(*) FROM pg_stat_activity WHERE starts_with(application_name, $1) AND xact_start " +
			"IS NOT NULL"
	}
	if e.admin, err = sql.Open(driver, server.DSN); err != nil {
		return nil, err
	}
	e.admin.SetMaxIdleConns(4)
	return e, nil
}

// prepare creates what the instances share.
func (e *engine) prepare() error {
	for _, statement := range []string{
		"DROP TABLE IF EXISTS gocron_runs", "CREATE TABLE gocron_runs (job VARCHAR(200) NOT NULL, instance " +
			"VARCHAR(64) NOT NULL, tick BIGINT NOT NULL)",
	} {
		if _, err := e.admin.Exec(statement); err != nil {
			return fmt.Errorf("%s: %s: %w", e.Name, statement, err)
		}
	}
	i, err := e.connect("gc_install", 0)
	if err != nil {
		return err
	}
	return i.close()
}

// table is a table of the administrator's, spelled so that every instance finds it.
func (e *engine) table(name string) string {
	if e.postgres {
		return "public." + name
	}
	dsn, _, _ := strings.Cut(e.DSN, "?")
	return dsn[strings.LastIndexByte(dsn, '/')+1:] + "." + name
}

// dsn connects as one instance, with an application name of its own on PostgreSQL, and in a
// database of its own elsewhere.
func (e *engine) dsn(label string, connections int) (string, error) {
	if !e.postgres {
		dsn, query, _ := strings.Cut(e.DSN, "?")
		dsn = strings.TrimSuffix(dsn[:strings.LastIndexByte(dsn, '/')+1]+label+"?"+query, "?")
		return servers.WithPool(dsn, connections), nil
	}
	u, err := url.Parse(e.DSN)
	if err != nil {
		return "", err
	}
	settings := u.Query()
	settings.Set("application_name", label)
	u.RawQuery = settings.Encode()
	return servers.WithPool(u.String(), connections), nil
}

// transactions waits until exactly n sessions of an instance are in a transaction. InnoDB's views
// serve an old picture as long as anybody asks again within 100 ms.
func (e *engine) transactions(t *testing.T, label string, n int) {
	t.Helper()
	eventually.True(t, fmt.Sprintf("%d transactions", n), func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		<-time.After(time.Until(e.asked.Add(120 * time.Millisecond)))
		var open int
		require.NoError(t, e.admin.QueryRow(e.sessions, label).Scan(&open))
		e.asked = time.Now()
		return open == n
	})
}

// killSessions ends all sessions of an instance, as an administrator does. They are gone when it
// returns: an idle one that was about to end would answer the next statement with its error.
func (e *engine) killSessions(t *testing.T, label string) {
	t.Helper()
	if e.postgres {
		_, err := e.admin.Exec("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE "+
			"starts_with(application_name, $1)", label)
		require.NoError(t, err)
		return
	}
	query := "SELECT id FROM information_schema.processlist WHERE db = ?"
	for _, id := range database.Column[int](t, e.admin, query, label) {
		_, _ = e.admin.Exec(fmt.Sprintf("KILL %d", id)) // or it had already ended
	}
}

// runs counts the runs of a job, and the different ticks at which it ran.
func (e *engine) runs(t *testing.T, job string) (runs, ticks int) {
	t.Helper()
	query := "SELECT COUNT(*), COUNT(DISTINCT tick) FROM gocron_runs WHERE job = ?"
	if e.postgres {
		query = strings.ReplaceAll(query, "?", "$1")
	}
	require.NoError(t, e.admin.QueryRow(query, job).Scan(&runs, &ticks))
	return runs, ticks
}

// onEach runs a test on every engine.
func onEach(t *testing.T, test func(t *testing.T, e *engine)) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

var labels atomic.Int64

// newLabel is short and not a prefix of another label. A session on PostgreSQL that holds locks may
// append to its label. As a key, it has a slot of its own: tests run beside each other.
func newLabel() string {
	for {
		label := fmt.Sprintf("gc_%d_%d_", os.Getpid(), labels.Add(1))
		if _, taken := slots.LoadOrStore(crc32.ChecksumIEEE([]byte(label))%dialects.DefaultSlots, true); !taken {
			return label
		}
	}
}

var slots sync.Map // those of labels
