//go:build unix

package main_test

import (
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/cmd/txlock/internal/terminal"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/must"
)

// screen is a command that runs on a terminal of its own.
type screen struct {
	*exec.Cmd
	tty    *os.File
	seen   buffer
	offset int // how far see has read
	ended  chan struct{}
}

func (f *fixture) onTerminal(t *testing.T, c *exec.Cmd) *screen {
	t.Helper()
	c.SysProcAttr = nil // StartWithSize sets its own
	s := &screen{Cmd: c, ended: make(chan struct{})}
	s.tty = must.Get(pty.StartWithSize(c, &pty.Winsize{Rows: 24, Cols: 80}))(t)
	go func() { _, _ = io.Copy(&s.seen, s.tty) }()
	go func() {
		_ = c.Wait()
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-s.ended
		_ = s.tty.Close()
	})
	return s
}

func (f *fixture) typed(t *testing.T, more []string, arguments ...string) *screen {
	t.Helper()
	return f.onTerminal(t, command(append([]string{"TXLOCK_DSN=" + f.url, "TERM=xterm"}, more...), arguments...))
}

// see waits for new output that matches.
func (s *screen) see(t *testing.T, pattern string) string {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	var match []int
	eventually.True(t, pattern+" on the screen", func() bool {
		match = expression.FindStringIndex(s.seen.String()[s.offset:])
		return match != nil
	})
	text := s.seen.String()[s.offset+match[0] : s.offset+match[1]]
	s.offset += match[1]
	return text
}

func (s *screen) key(t *testing.T, keys string) {
	t.Helper()
	must.Get(io.WriteString(s.tty, keys))(t)
}

func (s *screen) wait(t *testing.T) int {
	t.Helper()
	eventually.True(t, "the end", func() bool {
		select {
		case <-s.ended:
			return true
		default:
			return false
		}
	})
	return s.ProcessState.ExitCode()
}

var inside = regexp.MustCompile(`in (\d+)`)

var escape = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")

// On a terminal the table fits the width. It has colours, unless NO_COLOR says no.
func TestStatusOnTerminal(t *testing.T) {
	f := onPostgres(t)
	holder := f.play(t, "patient", "a-rather-long-key-of-more-than-forty-characters-which-is-cut")
	s := f.typed(t, nil, "status")
	require.Zero(t, s.wait(t))
	s.see(t, "held")
	require.Contains(t, s.seen.String(), "\x1b[1m")
	plain := escape.ReplaceAllString(s.seen.String(), "")
	require.Regexp(t, `a-rather-long-key[a-z-]+… +held +\d+`, plain)
	for _, line := range strings.Split(plain, "\r\n") {
		require.LessOrEqual(t, terminal.Columns(line), 80, line)
	}
	s = f.typed(t, []string{"NO_COLOR=1"}, "status")
	require.Zero(t, s.wait(t))
	s.see(t, "held")
	require.NotContains(t, s.seen.String(), "\x1b")
	holder.end(t)
}

// The live screen uses the terminal's second screen, counts what does not fit, follows locks and
// size, and leaves the terminal as it was.
func TestWatch(t *testing.T) {
	f := onPostgres(t)
	s := f.typed(t, nil, "status", "--watch")
	before := must.Get(pty.GetsizeFull(s.tty))(t)
	s.see(t, `\x1b\[\?1049h`)
	s.see(t, "no locks are held")
	holder := f.play(t, "patient", "watched")
	s.see(t, "watched +.{0,10}held")
	typed := []string{"run"}
	for i := range 30 {
		typed = append(typed, strconv.Itoa(i))
	}
	many := f.start(t, append(typed, "--", "cat")...)
	s.see(t, `… \d+ more lines`)
	require.NoError(t, many.stdin.Close())
	require.Zero(t, many.wait(t))
	before.Cols, before.Rows = 40, 10
	require.NoError(t, pty.Setsize(s.tty, before))
	s.see(t, "LOCK +STATE +SESSION[^\n]{0,20}…\x1b")
	holder.end(t)
	s.see(t, "no locks are held")
	s.key(t, "\x03")
	require.Zero(t, s.wait(t))
	s.see(t, `\x1b\[\?25h\x1b\[\?1049l$`)
	// A signal leaves the terminal tidy, too.
	s = f.typed(t, nil, "status", "--watch")
	s.see(t, "no locks are held")
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 128+15, s.wait(t))
	s.see(t, `\x1b\[\?1049l`)
}

// Break asks first, and ends nothing without a yes.
func TestBreakOnTerminal(t *testing.T) {
	f := onPostgres(t)
	holder := f.play(t, "polite", "k")
	for answer, code := range map[string]int{"n\r": 4, "\r": 4, "perhaps\r": 4, "\x04": 4, "\x03": 130} {
		s := f.typed(t, nil, "break", "k")
		s.see(t, `End this session\? \[y/N\] `)
		s.key(t, answer)
		require.Equal(t, code, s.wait(t))
	}
	require.Equal(t, 75, f.run(t, "run", "--try", "k", "--", "true").code)
	s := f.typed(t, nil, "break", "k")
	s.see(t, `End this session\? \[y/N\] `)
	s.key(t, "y\r")
	require.Zero(t, s.wait(t))
	s.see(t, "was ended.")
	require.Equal(t, 76, holder.wait(t))
}

// On a terminal ctrl-C reaches the command once, and txlock forwards other signals. The command may
// read the terminal.
func TestRunOnTerminal(t *testing.T) {
	f := onPostgres(t)
	role := roleVariable + "=patient"
	s := f.typed(t, []string{role}, "run", "k", "--", os.Args[0])
	s.see(t, "ready")
	s.key(t, "\x03")
	s.see(t, "SIGINT")
	s.key(t, "\x1c")
	s.see(t, "SIGQUIT")
	require.NoError(t, s.Process.Signal(syscall.SIGUSR1))
	s.see(t, "SIGUSR1")
	s.key(t, "9\r")
	require.Equal(t, 9, s.wait(t))
	require.Equal(t, 1, strings.Count(s.seen.String(), "SIGINT"))
	require.Equal(t, 1, strings.Count(s.seen.String(), "SIGQUIT"))

	// While it waits it names the holder. ctrl-C ends the wait.
	holder := f.play(t, "patient", "k")
	s = f.typed(t, nil, "run", "k", "--", "echo", "never")
	s.see(t, "waiting for k: held for .* by session")
	s.key(t, "\x03")
	require.Equal(t, 130, s.wait(t))
	f.waiters(t, 0)
	holder.end(t)

	// A loss ends what the command has started, although all of it shares txlock's process group.
	s = f.typed(t, nil, "run", "k", "--grace", "200ms", "--", "sh", "-c",
		`trap "" TERM; sh -c 'echo in $$; while :; do sleep 0.1; done'`)
	s.see(t, "in [0-9]+\r")
	pid := must.Get(strconv.Atoi(inside.FindStringSubmatch(s.seen.String())[1]))(t)
	f.killSessions(t)
	require.Equal(t, 76, s.wait(t))
	gone(t, pid)
	s.see(t, "was killed")
}

// ctrl-Z stops the command and txlock, and fg continues both.
func TestJobControl(t *testing.T) {
	t.Parallel()
	shell := must.Get(exec.LookPath("bash"))(t)
	f := installed(t, engines[0])
	c := exec.Command(shell, "--norc", "--noprofile", "-i")
	c.Env = environment("TXLOCK_DSN="+f.url, "TERM=dumb", "PS1=$ ", roleVariable+"=halting")
	s := f.onTerminal(t, c)
	s.key(t, "set -o pipefail\r"+binary+" run k -- "+os.Args[0]+" | cat\r")
	s.see(t, "ready")
	s.key(t, "\x1a")
	s.see(t, "Stopped")
	s.key(t, "fg\r")
	s.see(t, "SIGCONT")
	s.key(t, "3\r")
	s.key(t, "echo code $?.\r")
	s.see(t, `code 3\.`)
	s.key(t, "exit\r")
	s.wait(t)
}
