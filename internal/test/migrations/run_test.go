//go:build unix

package migrations_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// patient limits what must happen. A CREATE INDEX CONCURRENTLY that waits for a session of txlock
// is through in about 10 s; one that hangs never is.
const patient = 2 * time.Minute

// engine is a running PostgreSQL.
type engine struct {
	*servers.Server
	admin *sql.DB
}

var (
	binary  string // the path of txlock
	engines []*engine
)

func TestMain(m *testing.M) {
	if name := os.Getenv(toolVariable); name != "" {
		os.Exit(beTool(name))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	folder, err := os.MkdirTemp("", "txlock-migrations")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	binary = filepath.Join(folder, "txlock")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, ".")
	build.Dir = filepath.Join("..", "..", "..", "cmd", "txlock")
	build.Env = append(os.Environ(), "GOWORK=") // that of its own folder
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %s", err, output)
		return 1
	}
	kinds := []servers.Kind{servers.Postgres15, servers.Postgres18}
	return servers.RunOn(kinds, func(server *servers.Server) (io.Closer, error) {
		e := &engine{Server: server}
		var err error
		if e.admin, err = sql.Open("pgx", server.DSN); err != nil {
			return nil, err
		}
		engines = append(engines, e)
		return e.admin, nil
	}, m.Run)
}

// Three replicas run a tool under txlock run at once. One migrates, two wait, and all end. Neither
// the txlock that holds the lock nor those that wait for it stand in the way of the index for long.
func TestConcurrently(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		for _, c := range tools {
			t.Run(e.Name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				s := e.newShop(t)
				replicas := s.startThree(t, c, binary, "run", "migrations", "--")
				opened := time.Now()
				s.open()
				for _, r := range replicas {
					require.Zero(t, r.wait(t), r.output)
				}
				took := time.Since(opened)
				t.Logf("all three ended %v after the gate had opened", took.Round(time.Millisecond))
				require.Less(t, took, patient)
				s.migrated(t, c)
			})
		}
	}
}

// The lock of golang-migrate itself does not go together with such an index: who waits for the lock
// holds a snapshot for which the index waits. The server finds the circle. Whose statement it ends
// depends on who has waited for a deadlock_timeout last. When that is the index, all replicas fail,
// and somebody has to clean up. That is why docs/migrations.md advises txlock run.
func TestMigrateUnaided(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			s, c := e.newShop(t), tools[1]
			replicas := s.startThree(t, c)
			eventually.True(t, "the two have looked for a deadlock", func() bool {
				return s.ask(t, `SELECT COUNT(*) FROM pg_stat_activity WHERE datname = CURRENT_DATABASE()
					AND wait_event = 'advisory' AND query_start <
					CLOCK_TIMESTAMP() - CURRENT_SETTING('deadlock_timeout')::interval - interval '1s'`) == "2"
			})
			s.open()
			said := ""
			for _, r := range replicas {
				require.NotZero(t, r.wait(t), r.output)
				said += r.output.String()
			}
			require.Contains(t, said, "deadlock detected")
			require.Contains(t, said, "Dirty database version 3")
			require.Equal(t, "1", s.ask(t, "SELECT COUNT(*) FROM pg_index WHERE NOT indisvalid AND "+index))
		})
	}
}

// shop is a database with an installed lock table, and a gate at which the second migration waits.
type shop struct {
	db   *sql.DB
	dsn  string
	open func()
}

var shops atomic.Int64

func (e *engine) newShop(t *testing.T) *shop {
	t.Helper()
	name := fmt.Sprintf("shop_%d_%d", os.Getpid(), shops.Add(1))
	u := must.Get(url.Parse(e.DSN))(t)
	u.Path = "/" + name
	database.Exec(t, e.admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { database.Exec(t, e.admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	s := &shop{dsn: u.String()}
	s.db = database.Open(t, "pgx", s.dsn)
	output, err := s.command(binary, "install", "--slots", "512").CombinedOutput()
	require.NoError(t, err, string(output))

	database.Exec(t, s.db, "CREATE TABLE gate ()")
	gate := must.Get(s.db.Begin())(t)
	database.Exec(t, gate, "LOCK TABLE gate")
	s.open = func() { require.NoError(t, gate.Commit()) }
	t.Cleanup(func() { _ = gate.Rollback() }) // unless it was opened
	return s
}

// replica is a process that migrates.
type replica struct {
	output *bytes.Buffer // to be read when it has ended
	ended  chan int
}

func (s *shop) command(arguments ...string) *exec.Cmd {
	c := exec.Command(arguments[0], arguments[1:]...)
	// At its end, a program with the race detector would wait a second for others that may be
	// writing a report.
	c.Env = append(os.Environ(), "TXLOCK_DSN="+s.dsn, "GORACE=atexit_sleep_ms=0")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

// start starts this binary, which becomes the tool. In front of it may be a command that starts it.
func (s *shop) start(t *testing.T, c tool, before ...string) *replica {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, c.folder(folder))
	self := must.Get(os.Executable())(t)
	command := s.command(slices.Concat(before, []string{self})...)
	command.Env = append(command.Env, toolVariable+"="+c.name, folderVariable+"="+folder)
	r := &replica{output: &bytes.Buffer{}, ended: make(chan int, 1)}
	command.Stdout, command.Stderr, command.WaitDelay = r.output, r.output, time.Second
	require.NoError(t, command.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = command.Wait()
		r.ended <- command.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		<-done
	})
	return r
}

// startThree starts three replicas, and returns when one of them is at the gate and the others wait
// for a lock, whosever it is.
func (s *shop) startThree(t *testing.T, c tool, before ...string) (replicas []*replica) {
	t.Helper()
	for range 3 {
		replicas = append(replicas, s.start(t, c, before...))
	}
	eventually.True(t, "one is at the gate, two wait for the lock", func() bool {
		return s.ask(t, `SELECT STRING_AGG(wait_event, ' ' ORDER BY wait_event) FROM pg_stat_activity
			WHERE datname = CURRENT_DATABASE() AND wait_event_type = 'Lock'`) == "advisory advisory relation"
	})
	return replicas
}

// wait waits for the end, and returns the exit code.
func (r *replica) wait(t *testing.T) int {
	t.Helper()
	select {
	case code := <-r.ended:
		return code
	case <-time.After(patient):
		require.Fail(t, "a replica did not end")
	}
	return -1
}

// ask returns a single value of the database as text, "" for NULL.
func (s *shop) ask(t *testing.T, query string) string {
	t.Helper()
	var value sql.NullString
	require.NoError(t, s.db.QueryRow(query).Scan(&value), strings.TrimSpace(query))
	return value.String
}

const index = "indexrelid = 'orders_customer'::regclass"

// migrated requires that each migration was done once, and well.
func (s *shop) migrated(t *testing.T, c tool) {
	t.Helper()
	require.Equal(t, "4", s.ask(t, c.version))
	require.Equal(t, "10002", s.ask(t, "SELECT COUNT(*) FROM orders"))
	require.Equal(t, "1", s.ask(t, "SELECT COUNT(*) FROM pg_index WHERE indisvalid AND "+index))
}
