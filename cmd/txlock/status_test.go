//go:build unix

package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// shown is the JSON of status, as the help promises it.
type shown struct {
	Server string
	At     time.Time
	Locks  []struct {
		Table, Column, Row, Key string
		Holder                  *shownSession
		Readers, Waiters        []shownSession
	}
}

type shownSession struct {
	ID, Key, Application, Host, User, Database, Statement string
	Process                                               int
	Since                                                 *time.Time
	For                                                   *float64 `json:"for_seconds"`
	Idle                                                  *bool
	Shared                                                bool
}

func (f *fixture) status(t *testing.T, keys ...string) (s shown) {
	t.Helper()
	r := f.run(t, append([]string{"status", "--json"}, keys...)...)
	require.Zero(t, r.code, r.stderr)
	decoder := json.NewDecoder(strings.NewReader(r.stdout))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&s))
	return s
}

func TestStatus(t *testing.T) { each(t, status) }

// Holders and waiters are shown in the order of the queue, as a table and as JSON.
func status(t *testing.T, e *engine) {
	e.oneAtATime(t)
	f := installed(t, e)
	require.Equal(t, result{0, "no locks are held", ""}, f.run(t, "status"))
	require.Equal(t, result{0, "not held: k", ""}, f.run(t, "status", "k"))
	require.Empty(t, f.status(t).Locks)

	holder := f.play(t, "patient", "k", "--lease", "1h") // idle for the next minutes: no heartbeat is due
	var waiters []*process
	for i := range 3 {
		waiters = append(waiters, f.start(t, "run", "k", "--", "sh", "-c", "echo mine; cat"))
		f.waiters(t, i+1)
	}
	s := f.status(t, "k")
	require.WithinDuration(t, time.Now(), s.At, time.Minute)
	require.Len(t, s.Locks, 1)
	k := s.Locks[0]
	require.Equal(t, "k", k.Key)
	require.Equal(t, "txlock_slots", k.Table)
	require.Empty(t, k.Column)
	require.NotEmpty(t, k.Row)
	require.NotNil(t, k.Holder)
	if e.Kind != servers.MariaDB { // it does not show what an idle session says of itself
		require.Equal(t, holder.Process.Pid, k.Holder.Process)
		require.Equal(t, "txlock", k.Holder.Application)
	}
	require.Equal(t, f.database, k.Holder.Database)
	require.NotEmpty(t, k.Holder.ID)
	require.NotEmpty(t, k.Holder.User)
	require.NotNil(t, k.Holder.Since)
	require.True(t, *k.Holder.Idle)
	require.Greater(t, *k.Holder.For, 0.0)
	require.Len(t, k.Waiters, 3)
	for i, waiter := range waiters {
		require.Equal(t, waiter.Process.Pid, k.Waiters[i].Process)
		require.False(t, *k.Waiters[i].Idle)
	}
	require.Empty(t, f.status(t, "another").Locks)

	r := f.run(t, "status")
	require.Zero(t, r.code)
	lines := strings.Split(r.stdout, "\n")
	require.Len(t, lines, 5)
	require.Regexp(t, `^LOCK +STATE +SESSION +FOR +WAITING +APPLICATION +CLIENT +STATEMENT$`, lines[0])
	require.Regexp(t, fmt.Sprintf(`^k +held +%s +\S+ +3 .* idle`, k.Holder.ID), lines[1])
	for i, waiter := range waiters {
		require.Regexp(t, fmt.Sprintf(`^  %d\. +waits .* process %d `, i+1, waiter.Process.Pid), lines[i+2])
	}
	holder.end(t)
	for _, waiter := range waiters {
		require.Equal(t, "mine", waiter.line(t))
		require.NoError(t, waiter.stdin.Close())
		require.Zero(t, waiter.wait(t))
	}
}

// A key may contain anything. Neither the table nor JSON passes it on to a terminal as it is; JSON
// escapes it.
func TestStatusOfHostileKey(t *testing.T) {
	f := onPostgres(t)
	key := "mad \x1b]0;\a\u202e\u009b" // PostgreSQL shows 50 bytes of the application, the process and this
	holder := f.play(t, "patient", key)
	require.Equal(t, key, f.status(t).Locks[0].Key)
	require.Contains(t, f.run(t, "status", "--json").stdout, `"key": "mad \u001b]0;\u0007\u202e\u009b"`)
	require.Contains(t, f.run(t, "status").stdout, "mad ?]0;???")
	r := f.run(t, "run", "--try", key, "--", "true")
	require.Equal(t, 75, r.code)
	require.NotContains(t, r.stderr, "\a")
	holder.end(t)
}

func TestSilentServer(t *testing.T) { each(t, silentServer) }

// If a server falls silent, break ends when its time is over. ctrl-C ends a wait at once.
func silentServer(t *testing.T, e *engine) {
	f := installed(t, e)
	direct := f.url
	holder := f.play(t, "patient", "k")
	proxy := f.proxied(t, 5)
	s := f.typed(t, nil, "break", "k")
	s.see(t, `End this session\? \[y/N\] `)
	proxy.Behave(silent)
	answered := time.Now()
	s.key(t, "y\r")
	require.Equal(t, 69, s.wait(t))
	require.Less(t, time.Since(answered), soon, "5 s, and 1 s to close, for which pgx would take 6 s")
	require.NoError(t, proxy.Close())
	s.see(t, "break k: no answer within 5s")
	holder.end(t)

	// ctrl-C ends a wait for a locked table.
	f.url = direct
	for _, arguments := range [][]string{{"doctor"}, {"install"}} {
		unlock := f.lockTable(t)
		p := f.start(t, arguments...)
		f.stuck(t, true)
		require.NoError(t, p.Process.Signal(syscall.SIGINT))
		require.Equal(t, 130, p.wait(t))
		require.Contains(t, p.stderr.String(), "interrupted: ")
		unlock()
		f.stuck(t, false)
	}
}

// lockTable locks the whole lock table.
func (f *fixture) lockTable(t *testing.T) (unlock func()) {
	t.Helper()
	conn := must.Get(f.admin.Conn(background))(t)
	lock, release := "LOCK TABLES "+f.database+".txlock_slots WRITE", "UNLOCK TABLES"
	if f.postgres {
		conn.Close()
		admin := database.Open(t, "pgx", f.url)
		conn = must.Get(admin.Conn(background))(t)
		lock, release = "BEGIN; LOCK TABLE txlock_slots IN ACCESS EXCLUSIVE MODE", "ROLLBACK"
	}
	limited, cancel := context.WithTimeout(background, 2*soon)
	defer cancel()
	must.Get(conn.ExecContext(limited, lock))(t)
	return func() {
		database.Exec(t, conn, release)
		require.NoError(t, conn.Close())
	}
}

// stuck waits until a session in the fixture's database waits for a table lock, or until none does.
func (f *fixture) stuck(t *testing.T, wanted bool) {
	t.Helper()
	query := "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%' AND db = ?"
	if f.postgres {
		query = f.queued
	}
	eventually.True(t, "a session that waits", func() bool {
		var n int
		require.NoError(t, f.admin.QueryRow(query, f.database).Scan(&n))
		return n > 0 == wanted
	})
}

// The live screen closes if there will be nothing to show. It says what keeps it from looking.
func TestWatchTrouble(t *testing.T) {
	t.Parallel()
	f := newFixture(t, engines[0])
	s := f.typed(t, nil, "status", "--watch")
	require.Equal(t, 78, s.wait(t))
	s.see(t, `\x1b\[\?1049l[^\x1b]*run "txlock install" once`)

	require.Zero(t, f.run(t, "install", "--slots", "512").code)
	proxy := f.proxied(t, 5)
	s = f.typed(t, nil, "status", "--watch")
	s.see(t, "no locks are held")
	proxy.Behave(silent)
	s.see(t, "cannot look, trying again: no answer within 5s")
	s.key(t, "\x03")
	require.Zero(t, s.wait(t))
}

var duration = regexp.MustCompile(`[0-9.]+m?s`)

func TestDoctor(t *testing.T) { each(t, doctor) }

// The doctor's findings decide the exit code.
func doctor(t *testing.T, e *engine) {
	f := newFixture(t, e)
	r := f.run(t, "doctor")
	require.Equal(t, 2, r.code, r.stdout+r.stderr)
	require.Contains(t, r.stdout, "FAILURE")
	require.Contains(t, r.stdout, "fix")
	require.Empty(t, r.stderr)
	require.Zero(t, f.run(t, "install", "--slots", "512").code)
	r = f.run(t, "doctor")
	require.Zero(t, r.code, r.stdout)
	require.Regexp(t, `(?m)^ok       row-locking: `, r.stdout)
	require.Regexp(t, `\d+ ok, \d+ to note, \d+ warnings?, 0 failures$`, r.stdout)
	require.NotContains(t, f.run(t, "doctor", "--quiet").stdout, "row-locking")
	var report struct {
		Server, Worst string
		Findings      []struct{ Check, Severity, Found, Why, Fix string }
	}
	require.NoError(t, json.Unmarshal([]byte(f.run(t, "doctor", "--json").stdout), &report))
	require.NotEmpty(t, report.Findings)
	require.Contains(t, report.Server, f.database)

	// A limit on statements is a warning, which fails only with --strict.
	if e.postgres {
		f.do(t, "ALTER DATABASE "+f.database+" SET statement_timeout = '7s'")
		require.Zero(t, f.run(t, "doctor").code)
		r = f.run(t, "doctor", "--strict")
		require.Equal(t, 1, r.code, r.stdout)
		require.Contains(t, r.stdout, "7s")
	}
}
