//go:build unix

package main_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/servers"
)

func TestRun(t *testing.T) { each(t, runs) }

// The command gets the keys, a growing token, and txlock's input. Its exit code becomes txlock's.
func runs(t *testing.T, e *engine) {
	f := installed(t, e)
	before := int64(0)
	for range 2 {
		p := f.start(t, "run", "a key", "another", "--", "sh", "-c",
			`echo "$TXLOCK_TOKEN"; echo "$TXLOCK_KEY"; cat; exit 7`)
		token, err := strconv.ParseInt(p.line(t), 10, 64)
		require.NoError(t, err)
		require.Greater(t, token, before)
		before = token
		require.Equal(t, "a key", p.line(t))
		require.Equal(t, "another", p.line(t))
		p.send(t, "through the pipe")
		require.Equal(t, "through the pipe", p.line(t))
		require.NoError(t, p.stdin.Close())
		require.Equal(t, 7, p.wait(t))
		require.Empty(t, p.stderr.String())
	}
	require.Zero(t, f.run(t, "run", "k", "--", "true").code)
	require.Equal(t, 128+9, f.run(t, "run", "k", "--", "sh", "-c", "kill -KILL $$").code)
	require.Equal(t, 128+15, f.run(t, "run", "k", "--", "sh", "-c", "kill -TERM $$").code)
	// The token of an outer txlock is not passed on. A URL read from a file may end with a newline.
	p := run(t, []string{"TXLOCK_DSN=" + f.url + "\n", "TXLOCK_TOKEN=5", "TXLOCK_KEY=x"}, "run", "--no-token", "k",
		"--", "sh", "-c", `echo "$TXLOCK_KEY ${TXLOCK_TOKEN-none}"`)
	require.Equal(t, "k none", p.stdout)
	// Flags after -- belong to the command.
	require.Equal(t, "--try", f.run(t, "run", "k", "--", "echo", "--try").stdout)
}

func TestExcludes(t *testing.T) { each(t, excludes) }

// While the command runs, nobody else gets the lock. When it has ended, the next in the queue does.
func excludes(t *testing.T, e *engine) {
	e.oneAtATime(t)
	f := installed(t, e)
	holder := f.play(t, "patient", "k")
	started := time.Now()
	// A try looks for the holder only briefly, so it may not find one at once.
	eventually.True(t, "a word about the holder", func() bool {
		missed := f.run(t, "run", "--try", "k", "--", "echo", "never")
		require.Equal(t, 75, missed.code)
		require.Empty(t, missed.stdout)
		require.Regexp(t, `^txlock: k was not acquired.*\n$`, missed.stderr)
		return regexp.MustCompile(`: held for \S+ by session \d+ \(.*\)\n$`).MatchString(missed.stderr)
	})
	missed := f.run(t, "run", "--wait", "300ms", "k", "--", "echo", "never")
	require.Equal(t, 75, missed.code)
	require.Empty(t, missed.stdout)
	require.Contains(t, missed.stderr, "within 300ms")
	require.GreaterOrEqual(t, time.Since(started), 300*time.Millisecond)
	require.Equal(t, result{}, f.run(t, "run", "--try", "-E", "0", "k", "--", "echo", "never"))
	require.Equal(t, 3, f.run(t, "run", "--try", "--conflict-exit-code=3", "other", "k", "--", "echo", "never").code)

	next := f.start(t, "run", "-v", "k", "--", "echo", "mine")
	f.waiters(t, 1)
	eventually.True(t, "a word about the holder", func() bool {
		return strings.Contains(next.stderr.String(), "waiting for k: held for ")
	})
	if e.Kind != servers.MariaDB { // it does not show what an idle session says of itself
		require.Contains(t, next.stderr.String(), "process "+strconv.Itoa(holder.Process.Pid))
	}
	holder.send(t, "5")
	require.Equal(t, 5, holder.wait(t))
	require.Equal(t, "mine", next.line(t))
	require.Zero(t, next.wait(t))
	require.Contains(t, next.stderr.String(), "k is ours after ")
}

func TestMissesForAnotherKey(t *testing.T) { each(t, missesForAnotherKey) }

// -E 0 is silent while the same key is held. Another key of its slot may be held for ever: that is
// said.
func missesForAnotherKey(t *testing.T, e *engine) {
	e.oneAtATime(t)
	f := installed(t, e)
	other := sharesSlot("k")
	try := func() result { return f.run(t, "run", "--try", "-E", "0", "k", "--", "echo", "never") }
	for _, holder := range []struct {
		flags []string
		says  string
	}{
		{nil, "k was not acquired: " + other + ", another key of the same slot, is held"},
		{[]string{"--hide-keys"}, "which does not show its key"},
	} {
		holding := f.play(t, "patient", other, holder.flags...)
		if e.Kind == servers.MariaDB { // it does not show what an idle session says of itself
			require.Equal(t, result{}, try())
		} else {
			missed := try()
			require.Zero(t, missed.code)
			require.Empty(t, missed.stdout)
			require.Contains(t, missed.stderr, holder.says)
			require.Regexp(t, `by session \d+ \(.*\)`, missed.stderr)
		}
		holding.end(t)
	}
	require.Equal(t, "never", try().stdout)
	if other = sharesSlot("once:1h0m0s:k"); e.Kind != servers.MariaDB {
		holding := f.play(t, "patient", other)
		missed := f.run(t, "once", "--per", "1h", "--try", "-E", "0", "k", "--", "echo", "never")
		require.Equal(t, result{0, "", missed.stderr}, missed)
		require.Contains(t, missed.stderr, "k was not acquired: "+other+", another key of the same slot, is held")
		holding.end(t)
	}
	same := f.play(t, "patient", "k", "a-key-of-this-job")
	require.Equal(t, result{}, try())
	same.end(t)
}

// sharesSlot is another key of the slot.
func sharesSlot(key string) string {
	for i := 0; ; i++ {
		other := "another-" + strconv.Itoa(i)
		if dialects.SlotOf(other, dialects.DefaultSlots) == dialects.SlotOf(key, dialects.DefaultSlots) {
			return other
		}
	}
}

func TestSlowToTell(t *testing.T) { each(t, slowToTell) }

// If the server is slow to name the holder, a waiter is told before that it waits.
func slowToTell(t *testing.T, e *engine) {
	e.oneAtATime(t)
	f := installed(t, e)
	holder := f.play(t, "patient", "k")
	f.proxied(t, 60).Delay(time.Second) // who asks on a new connection waits for at least 4 s
	p := f.start(t, "run", "-v", "k", "--", "echo", "mine")
	eventually.True(t, "a word about the holder", func() bool {
		return strings.HasPrefix(p.stderr.String(), "txlock: waiting for k\ntxlock: waiting for k: held ")
	})
	holder.end(t)
	require.Equal(t, "mine", p.line(t))
	require.Zero(t, p.wait(t))
}

func TestSignals(t *testing.T) { each(t, signals) }

// Each signal to txlock reaches the command once. It does not end txlock before the command.
func signals(t *testing.T, e *engine) {
	f := installed(t, e)
	p := f.play(t, "patient", "k")
	for _, sig := range []syscall.Signal{
		syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR2,
	} {
		require.NoError(t, p.Process.Signal(sig))
		require.Equal(t, unix.SignalName(sig), p.line(t))
	}
	require.Equal(t, 75, f.run(t, "run", "--try", "k", "--", "true").code, "it does not hold the lock any more")
	p.end(t)
	require.Empty(t, p.stderr.String())

	// The command ends by the signal, in a shell that then ends by it too.
	p = f.start(t, "run", "k", "--", "sh", "-c", "echo ready; sleep 1000; echo never")
	require.Equal(t, "ready", p.line(t))
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 128+15, p.wait(t))
}

func TestInterruptedWait(t *testing.T) { each(t, interruptedWait) }

// A signal during the wait takes the waiter out of the queue, also on the server. The holder does
// not notice.
func interruptedWait(t *testing.T, e *engine) {
	e.oneAtATime(t)
	f := installed(t, e)
	holder := f.play(t, "patient", "k")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		p := f.start(t, "run", "k", "--", "echo", "never")
		f.waiters(t, 1)
		require.NoError(t, p.Process.Signal(sig))
		require.Equal(t, 128+int(sig), p.wait(t))
		require.Equal(t, "txlock: interrupted: waiting for k\n", p.stderr.String())
		require.False(t, p.stdout.Scan())
		f.waiters(t, 0)
	}
	holder.end(t)
}

func TestIgnoredSignals(t *testing.T) {
	f := onPostgres(t)
	// A signal that was ignored from the start, as under nohup, stays ignored, also for the
	// command.
	c := command([]string{"TXLOCK_DSN=" + f.url}, "run", "k", "--", "sh", "-c",
		"kill -HUP $PPID; kill -HUP $$; echo alive; cat")
	c.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh", binary}, c.Args[1:]...)
	c.Path = "/bin/sh"
	p := start(t, c)
	require.Equal(t, "alive", p.line(t))
	require.NoError(t, p.stdin.Close())
	require.Zero(t, p.wait(t))
}

func TestCommandNotFound(t *testing.T) {
	f := onPostgres(t)
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(folder+"/text", []byte("not a program"), 0o644))
	require.NoError(t, os.WriteFile(folder+"/program", []byte("no program either"), 0o755))
	holder := f.play(t, "patient", "k") // the command is looked up before the wait
	require.Equal(t, 127, f.run(t, "run", "k", "--", "no-such-command").code)
	require.Equal(t, 127, f.run(t, "run", "k", "--", folder+"/nothing").code)
	require.Equal(t, 126, f.run(t, "run", "k", "--", folder+"/text").code)
	require.Equal(t, 126, f.run(t, "run", "k", "--", folder).code)
	holder.end(t)
	r := f.run(t, "run", "k", "--", folder+"/program")
	require.Equal(t, 126, r.code)
	require.Contains(t, r.stderr, "exec format error; is it a script without a #! line")
	require.Zero(t, f.run(t, "run", "--try", "k", "--", "true").code, "the lock was not released")
}

// A wait that a limit of the server ends is an error. It does not mean that another holds the lock.
func TestServersLimit(t *testing.T) {
	f := onPostgres(t)
	holder := f.play(t, "patient", "k")
	f.do(t, "ALTER DATABASE "+f.database+" SET statement_timeout = '2s'")
	for _, more := range [][]string{nil, {"--wait", "1h"}} {
		r := f.run(t, append(append([]string{"run", "-E", "0"}, more...), "k", "--", "echo", "never")...)
		require.Equal(t, 1, r.code, r.stderr)
		require.Empty(t, r.stdout)
		require.Regexp(t, `^txlock: waiting for k: the server ended the wait: .*57014.*; see "txlock doctor"\n$`,
			r.stderr)
	}
	require.Equal(t, result{}, f.run(t, "run", "--wait", "100ms", "-E", "0", "k", "--", "echo", "never"))
	require.Equal(t, 75, f.run(t, "run", "--try", "k", "--", "echo", "never").code)
	holder.end(t)
}

// A lease that the server cannot keep is refused before anything is sent.
func TestLeaseLimits(t *testing.T) {
	t.Parallel()
	for url, lease := range map[string]string{"postgres://h/d": "1us", "mysql://h/d": "999ms", "postgres://h": "600h"} {
		r := run(t, []string{"TXLOCK_DSN=" + url}, "run", "--lease", lease, "k", "--", "true")
		require.Equal(t, 64, r.code, r.stderr)
		require.Contains(t, r.stderr, "it must be from ")
	}
}

// In containers many processes have the same number. A holder or waiter with txlock's own number is
// not taken for txlock.
func TestSameProcess(t *testing.T) {
	f := onPostgres(t)
	driver, err := postgres.Open(background, f.url)
	require.NoError(t, err)
	locks := txlock.New(driver)
	defer locks.Close()
	for _, keys := range [][]string{{"k"}, {"k", "other"}} {
		c := command([]string{"TXLOCK_DSN=" + f.url}, append(
			append([]string{"run", "-v"}, keys...), "--", "echo", "mine")...)
		c.Args = append([]string{"sh", "-c", `read go; exec "$@"`, "sh", binary}, c.Args[1:]...)
		c.Path = "/bin/sh"
		p := start(t, c)
		held, ahead := make(chan error, 1), make(chan error, 1)
		locked, release := make(chan struct{}), make(chan struct{})
		go func() { held <- as(p.Process.Pid, locks, "k", locked, release) }()
		<-locked
		go func() {
			joins := make(chan struct{})
			close(joins)
			ahead <- as(p.Process.Pid, locks, "first", make(chan struct{}), joins, "k")
		}()
		f.waiters(t, 1)
		began := time.Now()
		// The wait of 5 s tells the two apart.
		eventually.True(t, "a second that passes", func() bool { return time.Since(began) > 5*time.Second })
		p.send(t, "go")
		eventually.True(t, "a word about both", func() bool {
			return regexp.MustCompile(`held for \S+ by session .*, 1 waiting ahead`).MatchString(p.stderr.String())
		})
		close(release)
		require.NoError(t, <-held)
		require.NoError(t, <-ahead)
		require.Equal(t, "mine", p.line(t))
		require.Zero(t, p.wait(t))
	}
}

// as locks a key in a session that shows another process number, closes locked, waits for release,
// and then locks further keys.
func as(process int, locks *txlock.Locker[pgx.Tx], key string, locked, release chan struct{}, further ...string) error {
	return locks.Mutex(key).Do(background, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("set local application_name = '#%d [%s]'", process, key))
		close(locked)
		<-release
		if err == nil && further != nil {
			_, err = locks.Mutex(further...).Lock(ctx) // ends with the Do
		}
		return err
	})
}

// A txlock inside another one with the same key says what it is about to wait for.
func TestNested(t *testing.T) {
	f := onPostgres(t)
	const warning = "holds k: if that is the same lock, this one waits for itself"
	r := f.run(t, "run", "a", "k", "--", binary, "run", "--wait", "100ms", "b", "k", "--", "echo", "never")
	require.Equal(t, 75, r.code)
	require.Contains(t, r.stderr, warning)
	r = f.run(t, "run", "a", "k", "--", binary, "run", "b", "--", "true")
	require.Equal(t, result{}, r)
	require.Equal(t, result{}, f.run(t, "run", "k", "--", binary, "run", "--try", "-E", "0", "k", "--", "echo",
		"never"))
}
