package doctor_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"io"
	"net"
	"os"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

var background = context.Background()

// engine is a running server and its administrator's pool.
type engine struct {
	*servers.Server
	admin    *sql.DB
	postgres bool
	look     func(ctx context.Context, dsn, table string) ([]doctor.Finding, error)
}

// engines are the servers of all tests. Tests that run side by side change nothing about a whole
// server, so a test that does is alone on its server. TestMySQLServer is the exception: beside it,
// no test runs on MySQL or MariaDB.
var engines []*engine

func TestMain(m *testing.M) {
	flag.Parse() // the tier depends on -short
	kinds := tier.Pick(servers.Newest(), servers.Newest(), servers.Kinds())
	os.Exit(servers.RunOn(kinds, func(server *servers.Server) (io.Closer, error) {
		e, err := newEngine(server)
		if err != nil {
			return nil, err
		}
		engines = append(engines, e)
		return e.admin, nil
	}, m.Run))
}

func newEngine(server *servers.Server) (e *engine, err error) {
	e = &engine{Server: server, postgres: server.Kind == servers.Postgres15 ||
		server.Kind == servers.Postgres18, look: doctor.MySQL}
	if e.postgres {
		e.look = doctor.Postgres
		e.admin, err = sql.Open("pgx", server.DSN)
	} else {
		e.admin, err = sql.Open("mysql", server.DSN)
	}
	return e, err
}

// onEvery runs a test on every matching engine, side by side.
func onEvery(t *testing.T, of func(*engine) bool, test func(t *testing.T, e *engine)) {
	for _, e := range engines {
		if of(e) {
			t.Run(e.Name, func(t *testing.T) {
				t.Parallel()
				test(t, e)
			})
		}
	}
}

// onSites is onEvery with a new site.
func onSites(t *testing.T, of func(*engine) bool, test func(t *testing.T, s *site)) {
	onEvery(t, of, func(t *testing.T, e *engine) { test(t, newSite(t, e)) })
}

func all(*engine) bool { return true }

func isPostgres(e *engine) bool { return e.postgres }

func isMySQL(e *engine) bool { return !e.postgres }

// A healthy server has no failures and no warnings. It has notes only on what no setting changes,
// and on what this user may not see.
func TestHealthy(t *testing.T) {
	ofPostgres := []string{"status: note", "status: note"}
	ofMySQL := []string{
		"innodb-lock-wait-timeout: note", "isolation: note", "replication: note", "status: note", "status: note",
		"status: note",
	}
	notes := map[servers.Kind][]string{
		servers.Postgres15: ofPostgres, servers.Postgres18: ofPostgres,
		servers.MySQL: ofMySQL, servers.MariaDB: ofMySQL,
	}
	onSites(t, all, func(t *testing.T, s *site) {
		findings := s.examine(t)
		require.Equal(t, notes[s.Kind], ailing(findings))
		require.Equal(t, doctor.Note, doctor.Worst(findings))
		require.Contains(t, find(t, findings, "row-locking").Found, "two sessions exclude each other")
		require.Contains(t, find(t, findings, "table").Found, "with 64 slots")
		for _, finding := range findings {
			require.NotEmpty(t, finding.Found)
			require.Equal(t, finding.Severity == doctor.OK, finding.Why == "", "%v", finding)
			if finding.Severity == doctor.OK {
				require.Empty(t, finding.Fix)
			}
		}
	})
}

// A server that accepts connections and stays silent is given up when the time to connect is over.
func TestSilent(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	for dsn, look := range map[string]func(context.Context, string, string) ([]doctor.Finding, error){
		"u@tcp(" + listener.Addr().String() + ")/d?timeout=300ms":                           doctor.MySQL,
		"postgres://u@" + listener.Addr().String() + "/d?connect_timeout=1&sslmode=disable": doctor.Postgres,
	} {
		ctx, cancel := context.WithTimeout(background, 20*time.Second)
		_, err = look(ctx, dsn, "txlock_slots")
		require.ErrorIs(t, err, context.DeadlineExceeded, dsn)
		require.NoError(t, ctx.Err(), dsn)
		cancel()
	}
}

// If the session ends in the middle of an examination, that is an error, not a report with gaps.
// TestSilentServer of the command shows that a signal ends one.
func TestSessionEnds(t *testing.T) {
	onSites(t, all, func(t *testing.T, s *site) {
		s.lockTable(t)
		ended := make(chan error, 1)
		go func() {
			_, err := s.look(background, s.dsn, s.table)
			ended <- err
		}()
		s.eventually(t, 1, s.waiting())
		if s.postgres {
			s.execute(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '%s'")
		} else {
			s.killSessions(t)
		}
		require.Error(t, <-ended)
	})
}

func TestWorst(t *testing.T) {
	of := func(severities ...doctor.Severity) doctor.Severity {
		var findings []doctor.Finding
		for _, severity := range severities {
			findings = append(findings, doctor.Finding{Severity: severity})
		}
		return doctor.Worst(findings)
	}
	require.Equal(t, doctor.OK, of())
	require.Equal(t, doctor.OK, of(doctor.OK, doctor.OK))
	require.Equal(t, doctor.Note, of(doctor.OK, doctor.Note))
	require.Equal(t, doctor.Warning, of(doctor.Warning, doctor.Note))
	require.Equal(t, doctor.Failure, of(doctor.Note, doctor.Failure, doctor.Warning))
}

func TestJSON(t *testing.T) {
	text, err := json.Marshal([]doctor.Finding{
		{Check: "version", Severity: doctor.OK, Found: "MySQL"},
		{Check: "a", Severity: doctor.Failure, Found: "b", Why: "c", Fix: doctor.Fix{Text: "d;", Kind: doctor.SQL}},
	})
	require.NoError(t, err)
	require.JSONEq(t, `[{"check":"version","severity":"ok","found":"MySQL"},
		{"check":"a","severity":"failure","found":"b","why":"c","fix":"d;","fix_kind":"sql"}]`, string(text))
}
