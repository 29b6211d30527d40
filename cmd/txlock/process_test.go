//go:build unix

package main_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/txlock/txlock/internal/test/must"
)

// soon limits what should happen at once, on a busy machine.
const soon = 10 * time.Second

// process is a run of the command in a session of its own, so that it has no terminal.
type process struct {
	*exec.Cmd
	stdin  io.WriteCloser
	output *os.File // stdout reads from it
	stdout *bufio.Scanner
	stderr *buffer
	ended  chan struct{} // closed when Wait has returned
}

// buffer can be read while it is written to.
type buffer struct {
	mu    sync.Mutex
	bytes bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.String()
}

// result is how a run ended.
type result struct {
	code           int
	stdout, stderr string
}

// environment is that of this process, without the variables of txlock, and with more.
func environment(more ...string) (entries []string) {
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "TXLOCK_") && !strings.HasPrefix(name, "PG") && name != "MYSQL_PWD" {
			entries = append(entries, entry)
		}
	}
	// At its end, a program with the race detector would wait a second for others that may be
	// writing a report.
	return append(append(entries, "GORACE=atexit_sleep_ms=0"), more...)
}

// command returns a run of the binary that has not started.
func command(entries []string, arguments ...string) *exec.Cmd {
	c := exec.Command(binary, arguments...)
	c.Env = environment(entries...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return c
}

// start starts the command with the fixture's database in TXLOCK_DSN.
func (f *fixture) start(t *testing.T, arguments ...string) *process {
	t.Helper()
	return start(t, command([]string{"TXLOCK_DSN=" + f.url}, arguments...))
}

// play starts a txlock that holds key while this test binary plays a role.
func (f *fixture) play(t *testing.T, role, key string, flags ...string) *process {
	t.Helper()
	arguments := append(append([]string{"run", key}, flags...), "--", os.Args[0])
	p := start(t, command([]string{"TXLOCK_DSN=" + f.url, roleVariable + "=" + role}, arguments...))
	require.Equal(t, "ready", p.line(t))
	return p
}

func start(t *testing.T, c *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: c, stderr: &buffer{}, ended: make(chan struct{})}
	if c.Stderr == nil {
		c.Stderr = p.stderr
	}
	var err error
	p.stdin = must.Get(c.StdinPipe())(t)
	output, input, err := os.Pipe() // not StdoutPipe, because a grandchild may keep it open
	require.NoError(t, err)
	c.Stdout = input
	c.WaitDelay = time.Second
	p.output, p.stdout = output, bufio.NewScanner(output)
	require.NoError(t, output.SetReadDeadline(time.Now().Add(6*soon)))
	require.NoError(t, c.Start())
	require.NoError(t, input.Close())
	go func() {
		_ = c.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		<-p.ended
		_ = output.Close()
	})
	return p
}

// line waits for the next line of standard output.
func (p *process) line(t *testing.T) string {
	t.Helper()
	require.True(t, p.stdout.Scan(), "no more output; standard error: %s", p.stderr)
	require.NotContains(t, p.stdout.Text(), "\x1b")
	return p.stdout.Text()
}

// number waits for a line that is a number.
func (p *process) number(t *testing.T) int {
	t.Helper()
	return must.Get(strconv.Atoi(p.line(t)))(t)
}

// send writes a line to standard input.
func (p *process) send(t *testing.T, line string) {
	t.Helper()
	must.Get(io.WriteString(p.stdin, line+"\n"))(t)
}

// wait waits for the end and returns the exit code. Output into a pipe has no escape codes.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(2 * soon):
		require.Fail(t, "the command did not end", "%v: %s", p.Args, p.stderr)
	}
	require.NotContains(t, p.stderr.String(), "\x1b")
	require.NotContains(t, p.stderr.String(), "DATA RACE")
	return p.ProcessState.ExitCode()
}

// end has a role end with 0, and its txlock too.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.send(t, "0")
	require.Zero(t, p.wait(t))
}

// run runs the command without input, and waits for its end.
func (f *fixture) run(t *testing.T, arguments ...string) result {
	t.Helper()
	return run(t, []string{"TXLOCK_DSN=" + f.url}, arguments...)
}

func run(t *testing.T, entries []string, arguments ...string) result {
	t.Helper()
	p := start(t, command(entries, arguments...))
	if err := p.stdin.Close(); !errors.Is(err, os.ErrClosed) { // Wait closes it when the command has ended
		require.NoError(t, err)
	}
	var lines []string
	for p.stdout.Scan() {
		lines = append(lines, p.stdout.Text())
	}
	code := p.wait(t)
	stdout := strings.Join(lines, "\n")
	require.NotContains(t, stdout, "\x1b")
	return result{code, stdout, p.stderr.String()}
}

// txlock runs this test binary as its command: TestMain sees roleVariable.
const roleVariable = "TXLOCK_TEST_ROLE"

// playRole says "ready", and then the name of each signal that it gets. A number on standard input
// ends it with that code; it answers any other line with its process number. A polite role also
// ends at SIGTERM, with 0. A halting role also says when it continues.
func playRole(role string) int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1,
		syscall.SIGUSR2)
	if role == "halting" {
		signal.Notify(signals, syscall.SIGCONT)
	}
	codes := make(chan int)
	go func() {
		input := bufio.NewScanner(os.Stdin)
		for input.Scan() {
			if code, err := strconv.Atoi(input.Text()); err == nil {
				codes <- code
				return
			}
			fmt.Println(os.Getpid())
		}
	}()
	fmt.Println("ready")
	for {
		select {
		case sig := <-signals:
			fmt.Println(unix.SignalName(sig.(syscall.Signal)))
			if sig == syscall.SIGTERM && role == "polite" {
				return 0
			}
		case code := <-codes:
			return code
		}
	}
}
