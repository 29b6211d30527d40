//go:build unix

package main_test

import (
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

func TestLost(t *testing.T) { each(t, lost) }

// When the session that holds the lock is gone, the command is ended, and the exit code says so.
func lost(t *testing.T, e *engine) {
	f := installed(t, e)
	polite := f.play(t, "polite", "k")
	f.killSessions(t)
	require.Equal(t, "SIGTERM", polite.line(t))
	require.Equal(t, 76, polite.wait(t), "the command itself has ended with 0")
	require.Contains(t, polite.stderr.String(), "txlock: k is lost: ")
	require.Contains(t, polite.stderr.String(), "txlock: k was lost while the command ran")
	require.NotContains(t, polite.stderr.String(), "killed")

	stubborn := f.play(t, "patient", "k", "--grace", "3s")
	began := time.Now()
	f.killSessions(t)
	require.Equal(t, "SIGTERM", stubborn.line(t))
	require.Equal(t, 76, stubborn.wait(t))
	require.GreaterOrEqual(t, time.Since(began), 3*time.Second)
	require.Contains(t, stubborn.stderr.String(), "did not end within 3s and was killed")
}

func TestLostWithDescendants(t *testing.T) {
	f := onPostgres(t)
	// What the command has started is ended too: if it ignores SIGTERM although the command does
	// not, if it has left the group, and if its parent has left it, as a daemon's does.
	scripts := []string{
		`sleep 1000 & echo $!; wait`,
		`sh -c 'trap "" TERM; echo $$; while :; do sleep 0.1; done' & wait`,
	}
	if runtime.GOOS == "linux" {
		scripts = append(scripts,
			`timeout 1000 sh -c 'echo $$; sleep 1000; true' & wait`,
			`setsid sh -c 'trap "" TERM; echo $$; while :; do sleep 0.1; done' & wait`,
			`(setsid sh -c 'echo $$; exec sleep 1000' &); exec sleep 1000`,
			`(setsid sh -c 'trap "" TERM; echo $$; while :; do sleep 0.1; done' &); exec sleep 1000`)
	}
	for _, script := range scripts {
		p := f.start(t, "run", "k", "--grace", "300ms", "--", "sh", "-c", script)
		pid := p.number(t)
		require.NoError(t, syscall.Kill(pid, 0))
		f.killSessions(t)
		require.Equal(t, 76, p.wait(t))
		gone(t, pid)
	}
	// Without a loss, what the command leaves in the background goes on.
	p := f.start(t, "run", "k", "--", "sh", "-c", `sleep 1000 >/dev/null 2>&1 & echo $!`)
	pid := p.number(t)
	require.Zero(t, p.wait(t))
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
}

var zombie = regexp.MustCompile(`(?m)^State:\s+Z`)

// gone waits until a process no longer runs. It may still be a zombie, if its new parent does not
// wait for it.
func gone(t *testing.T, pid int) {
	t.Helper()
	eventually.True(t, "the end of process "+strconv.Itoa(pid), func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if err == nil {
			return zombie.Match(stat)
		}
		return syscall.Kill(pid, 0) != nil
	})
}

func TestServerDies(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			serverDies(t, kind)
		})
	}
}

// A server that dies ends the holder's command and the wait of the others. The message differs from
// that for a held lock.
func serverDies(t *testing.T, kind servers.Kind) {
	server := must.Get(servers.Start(background, kind, servers.Options{}))(t)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	e := must.Get(newEngine(server))(t)
	defer e.admin.Close()
	e.oneAtATime(t)
	f := &fixture{engine: e, database: "dying"}
	f.do(t, "CREATE DATABASE dying")
	f.url = f.urlWith(t, nil)
	require.Zero(t, f.run(t, "install", "--slots", "16").code)
	holder := f.play(t, "polite", "k")
	waiter := f.start(t, "run", "k", "--", "echo", "never")
	f.waiters(t, 1)
	require.NoError(t, server.Kill())
	require.Equal(t, "SIGTERM", holder.line(t))
	require.Equal(t, 76, holder.wait(t))
	require.Equal(t, 69, waiter.wait(t), waiter.stderr)
	require.Contains(t, waiter.stderr.String(), "txlock: waiting for k: ")
	require.False(t, waiter.stdout.Scan())
	for _, arguments := range [][]string{
		{"run", "k", "--", "echo", "never"},
		{"status"},
		{"break", "-y", "k"},
		{"doctor"},
		{"install"},
		{"status", "--json"},
	} {
		r := f.run(t, arguments...)
		require.Equal(t, 69, r.code, "%v: %s", arguments, r.stderr)
		require.Empty(t, r.stdout)
		require.Regexp(t, `^txlock: [^\n]+\n$`, r.stderr)
	}
}

func TestConnecting(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"postgres", "mysql"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			connecting(t, scheme)
		})
	}
}

// ctrl-C ends the wait for a server that accepts connections and never answers. So does a time
// limit.
func connecting(t *testing.T, scheme string) {
	mute := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { require.NoError(t, mute.Close()) })
	accepted := make(chan net.Conn, 64)
	go func() {
		for {
			conn, err := mute.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	address := scheme + "://u:secretive@" + mute.Addr().String() + "/d"
	for _, arguments := range [][]string{
		{"run", "k", "--", "echo", "never"},
		{"status"},
		{"install"},
		{"doctor"},
		{"break", "-y", "k"},
	} {
		p := start(t, command([]string{"TXLOCK_DSN=" + address}, arguments...))
		conn := <-accepted
		require.NoError(t, p.Process.Signal(syscall.SIGINT))
		require.Equal(t, 130, p.wait(t), "%v", arguments)
		require.NotContains(t, p.stderr.String(), "secretive")
		require.NoError(t, conn.Close())
		require.False(t, p.stdout.Scan())
	}
	limit := map[string]string{"postgres": "connect_timeout=5", "mysql": "timeout=5s"}[scheme]
	r := run(t, []string{"TXLOCK_DSN=" + address + "?" + limit}, "run", "k", "--", "echo", "never")
	require.Equal(t, 69, r.code)
	require.NotContains(t, r.stderr, "secretive")
	require.Contains(t, r.stderr, mute.Addr().String())
}

// fullPipe is a pipe that accepts nothing more until it is read from.
func fullPipe(t *testing.T) (reader, full *os.File) {
	t.Helper()
	reader, full, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, reader.Close()) })
	raw := must.Get(full.SyscallConn())(t)
	var refused error
	require.NoError(t, raw.Write(func(fd uintptr) bool { // it does not block: it refuses what does not fit
		for refused == nil {
			_, refused = syscall.Write(int(fd), make([]byte, 1<<20))
		}
		return true
	}))
	require.ErrorIs(t, refused, syscall.EAGAIN)
	return reader, full
}

// A full standard error does not keep a granted lock from its command.
func TestGrantedUnheard(t *testing.T) {
	f := onPostgres(t)
	holder := f.play(t, "patient", "k")
	_, full := fullPipe(t)
	c := command([]string{"TXLOCK_DSN=" + f.url}, "run", "-v", "k", "--", "echo", "mine")
	c.Stderr = full
	p := start(t, c)
	require.NoError(t, full.Close())
	// Its last question, about claims, is a transaction on a connection of its own.
	eventually.True(t, "what the notice has asked", func() bool {
		var found int
		require.NoError(t, f.admin.QueryRow("SELECT COUNT(*) FROM pg_stat_activity WHERE datname = $1 AND state = "+
			"'idle' AND query = 'commit'", f.database).Scan(&found))
		return found > 0
	})
	holder.send(t, "0")
	require.Equal(t, "mine", p.line(t))
	require.Zero(t, p.wait(t))
}

// A full standard error, such as a terminal halted by ctrl-S, does not delay the end of the
// command.
func TestLostUnheard(t *testing.T) {
	f := onPostgres(t)
	reader, full := fullPipe(t)
	c := command([]string{"TXLOCK_DSN=" + f.url, roleVariable + "=polite"}, "run", "k", "--", os.Args[0])
	c.Stderr = full
	p := start(t, c)
	require.NoError(t, full.Close())
	require.Equal(t, "ready", p.line(t))
	f.killSessions(t)
	require.Equal(t, "SIGTERM", p.line(t))
	go io.Copy(io.Discard, reader)
	require.Equal(t, 76, p.wait(t))
}

func TestLease(t *testing.T) { each(t, lease) }

// A txlock that is silent for longer than its lease loses the lock to the next one. It ends its
// command when it continues.
func lease(t *testing.T, e *engine) {
	f := installed(t, e)
	p := f.play(t, "polite", "k", "--lease", "5s")
	next := f.start(t, "run", "k", "--", "echo", "mine")
	require.NoError(t, p.Process.Signal(syscall.SIGSTOP))
	require.Equal(t, "mine", next.line(t))
	require.Zero(t, next.wait(t))
	require.NoError(t, p.Process.Signal(syscall.SIGCONT))
	require.Equal(t, "SIGTERM", p.line(t))
	require.Equal(t, 76, p.wait(t))
	require.Contains(t, p.stderr.String(), "txlock: k is lost: ")
}

// A try that the server does not answer ends after the time for connecting. It is not a conflict.
func TestTryUnanswered(t *testing.T) {
	f := onPostgres(t)
	unlock := f.lockTable(t)
	f.proxied(t, 5)
	r := f.run(t, "run", "--try", "-E", "0", "k", "--", "echo", "never")
	require.Equal(t, 69, r.code)
	require.Empty(t, r.stdout)
	require.Contains(t, r.stderr, "txlock: trying k: no answer within 5s: ")
	unlock()
}

// A release that the server does not confirm differs from a loss. A signal ends the wait for it.
func TestReleaseUnconfirmed(t *testing.T) {
	f := onPostgres(t)
	for _, last := range []struct{ code, want int }{{0, 76}, {3, 3}, {0, 128 + int(syscall.SIGINT)}} {
		through := *f
		proxy := through.proxied(t, 10)
		p := through.play(t, "patient", strconv.Itoa(last.want))
		p.send(t, "pid")
		pid := p.number(t)
		proxy.Behave(silent)
		p.send(t, strconv.Itoa(last.code))
		gone(t, pid)
		if last.want > 128 {
			eventually.True(t, "the end by a signal", func() bool {
				return errors.Is(p.Process.Signal(syscall.SIGINT), os.ErrProcessDone)
			})
		}
		require.Equal(t, last.want, p.wait(t))
		if last.want < 128 {
			require.Regexp(t, `^txlock: the release of \d+ was not confirmed, and it may have been lost meanwhile: `+
				`.*; the command ended with code \d\n$`, p.stderr.String())
		}
	}
}

func TestReleaseUnanswered(t *testing.T) { each(t, releaseUnanswered) }

// The server falls silent, and the command ends before the lease does. The lock was held until
// then, so the exit code is the command's.
func releaseUnanswered(t *testing.T, e *engine) {
	f := installed(t, e)
	proxy := f.proxied(t, 10)
	p := f.play(t, "patient", "k", "--lease", "15s") // it sends a heartbeat within 2.5 s
	proxy.Behave(silent)
	since, before := time.Now(), proxy.Bursts()
	// After 3 s without a burst, the heartbeat was sent before the silence.
	eventually.True(t, "a heartbeat", func() bool {
		return proxy.Bursts() > before || time.Since(since) > 3*time.Second
	})
	p.send(t, "5")
	require.Equal(t, 5, p.wait(t), p.stderr)
	require.Regexp(t, `^txlock: the release of k was not confirmed, and it may have been lost meanwhile: .*; `+
		`the command ended with code 5\n$`, p.stderr.String())
}
