package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/must"
)

// In these roles the test binary sets up an unusual environment and then runs a command in it.
func init() {
	switch os.Getenv(roleVariable) {
	case "negligent": // like process 1 of many containers, it inherits orphans and never waits for them
		succeed(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
		c := exec.Command(os.Args[1], os.Args[2:]...)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		_ = c.Run()
		os.Exit(c.ProcessState.ExitCode())
	case "hidden": // nobody, who sees only his own processes in /proc
		succeed(unix.Mount("proc", "/proc", "proc", 0, "hidepid=2"))
		succeed(syscall.Setgroups(nil))
		succeed(syscall.Setgid(65534))
		succeed(syscall.Setuid(65534))
		succeed(syscall.Exec(os.Args[1], os.Args[1:], os.Environ()))
	}
}

func succeed(err error) {
	if err != nil {
		panic(err)
	}
}

// A process that has ended, but that nobody waits for, does not keep txlock waiting after a loss.
func TestZombies(t *testing.T) {
	f := onPostgres(t)
	c := command([]string{"TXLOCK_DSN=" + f.url, roleVariable + "=negligent"}, "run", "k", "--grace", "1h", "--", "sh",
		"-c", `sleep 1000 & echo $!; wait`)
	c.Path, c.Args = os.Args[0], append([]string{os.Args[0], binary}, c.Args[1:]...)
	p := start(t, c)
	pid := p.number(t)
	f.killSessions(t)
	require.Equal(t, 76, p.wait(t))
	gone(t, pid)
}

// An orphan becomes a child of txlock, which waits for it when it ends. Nothing of it is left.
func TestOrphans(t *testing.T) {
	f := onPostgres(t)
	p := f.start(t, "run", "k", "--", "sh", "-c", `(setsid sh -c 'echo $$; exec sleep 1000' &); cat`)
	pid := p.line(t)
	eventually.True(t, "the daemon to lose its parent", func() bool {
		status := must.Get(os.ReadFile("/proc/" + pid + "/status"))(t)
		return strings.Contains(string(status), "PPid:\t"+strconv.Itoa(p.Process.Pid)+"\n")
	})
	require.NoError(t, syscall.Kill(must.Get(strconv.Atoi(pid))(t), syscall.SIGKILL))
	eventually.True(t, "nothing to be left of the daemon", func() bool {
		_, err := os.Stat("/proc/" + pid)
		return os.IsNotExist(err)
	})
	p.send(t, "through the pipe") // the command has not noticed
	require.Equal(t, "through the pipe", p.line(t))
	require.NoError(t, p.stdin.Close())
	require.Zero(t, p.wait(t))
}

// What the process had started before it became txlock does not belong to the command, and neither
// does what that starts and abandons. It survives a loss.
func TestLostWithOthers(t *testing.T) {
	f := onPostgres(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	// One descendant of the command has left the group, one has lost its parent. Both outlive it.
	c := command([]string{"TXLOCK_DSN=" + f.url}, "run", "k", "--grace", "300ms", "--", "sh", "-c", `
		(sh -c 'trap "" TERM; echo $$; while :; do sleep 0.1; done' &)
		setsid sh -c 'trap "" TERM; echo $$; while :; do sleep 0.1; done' &
		echo $$; wait`)
	c.Args = append([]string{"sh", "-c", `sleep 1000 & echo $!
		sh -c 'read go <"$0"; setsid sh -c "echo \$\$; exec sleep 1000" &' "$0" & echo $!
		exec "$@"`, fifo, binary}, c.Args[1:]...)
	c.Path = "/bin/sh"
	p := start(t, c)
	other, parent := p.number(t), p.number(t)
	own := []int{p.number(t), p.number(t), p.number(t)}
	require.NoError(t, os.WriteFile(fifo, []byte("go\n"), 0)) // this returns once the reader has opened it
	late := p.number(t)
	others := []int{other, late}
	t.Cleanup(func() {
		for _, pid := range others {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	gone(t, parent)
	f.killSessions(t)
	require.Equal(t, 76, p.wait(t))
	for _, pid := range own {
		gone(t, pid)
	}
	for _, pid := range others {
		require.False(t, zombie.Match(must.Get(os.ReadFile("/proc/"+strconv.Itoa(pid)+"/status"))(t)))
	}
}

// What a command starts after it was told to end gets the same grace period, and is ended too.
func TestLostWithLate(t *testing.T) {
	f := onPostgres(t)
	p := f.start(t, "run", "k", "--grace", "3s", "--", "sh", "-c",
		`trap 'setsid sleep 1000 & echo $!; exit' TERM; echo ready; while :; do sleep 0.05; done`)
	require.Equal(t, "ready", p.line(t))
	f.killSessions(t)
	late := p.number(t)
	require.Equal(t, 76, p.wait(t))
	gone(t, late)
}

// If /proc has other process numbers than txlock's own, txlock ignores it.
func TestForeignProc(t *testing.T) {
	require.Zero(t, os.Getuid(), "only root makes a namespace of processes")
	f := onPostgres(t)
	c := command([]string{"TXLOCK_DSN=" + f.url}, "run", "k", "--grace", "1h", "--", "sh", "-c",
		"echo ready; sleep 1000 & wait")
	c.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	p := start(t, c)
	require.Equal(t, "ready", p.line(t))
	f.killSessions(t)
	require.Equal(t, 76, p.wait(t), p.stderr)
}

// A command that /proc hides from txlock's user is ended all the same. It is a program that the
// user may run but not read.
func TestHiddenProc(t *testing.T) {
	require.Zero(t, os.Getuid(), "only root mounts a /proc")
	f := onPostgres(t)
	require.NoError(t, os.Chmod(filepath.Dir(binary), 0o755)) // the umask may have removed these bits
	require.NoError(t, os.Chmod(binary, 0o755))
	unreadable := filepath.Join(filepath.Dir(binary), "sh")
	// A file that this process writes itself is busy while another test forks.
	require.NoError(t, exec.Command("install", "-m", "111", "/bin/sh", unreadable).Run())
	c := command([]string{"TXLOCK_DSN=" + f.url, roleVariable + "=hidden"}, "run", "k", "--grace", "3s", "--",
		unreadable, "-c", `trap 'echo told' TERM; echo ready; while :; do read line; done`)
	c.Path, c.Args = os.Args[0], append([]string{os.Args[0], binary}, c.Args[1:]...)
	c.SysProcAttr.Cloneflags, c.SysProcAttr.Unshareflags = syscall.CLONE_NEWPID, syscall.CLONE_NEWNS
	p := start(t, c)
	require.Equal(t, "ready", p.line(t))
	f.killSessions(t)
	require.Equal(t, "told", p.line(t))
	require.Equal(t, 76, p.wait(t), p.stderr)
	require.Contains(t, p.stderr.String(), "and was killed")
}

// A txlock that is killed takes its command with it, because its lock is free then.
func TestKilled(t *testing.T) {
	f := onPostgres(t)
	p := f.start(t, "run", "k", "--", "sh", "-c", `echo $$; while :; do sleep 0.05; done`)
	pid := p.number(t)
	require.NoError(t, p.Process.Kill())
	gone(t, pid)
	require.Zero(t, f.run(t, "run", "--wait", "20s", "k", "--", "true").code)
}

// A password in an argument does not stay where ps finds it. The command of run keeps its
// arguments.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, e := range []*engine{engines[0], engines[1]} {
		f := installed(t, e)
		address := f.withPassword(t)
		for _, flag := range [][]string{
			{"--dsn", address}, {"--dsn=" + address}, {"--dsn=" + f.sourceName(t, address)},
		} {
			arguments := append(flag, "run", "k", "--", "sh", "-c", "echo ready; cat", "x://y:kept@z")
			p := start(t, command(nil, arguments...))
			require.Equal(t, "ready", p.line(t))
			shown := must.Get(os.ReadFile("/proc/" + strconv.Itoa(p.Process.Pid) + "/cmdline"))(t)
			require.NotContains(t, string(shown), "hush", "it is escaped there")
			require.Contains(t, string(shown), "--dsn")
			require.Contains(t, string(shown), f.database)
			require.True(t, strings.HasSuffix(string(shown), "x://y:kept@z\x00"))
			require.NoError(t, p.stdin.Close())
			require.Zero(t, p.wait(t), p.stderr)
		}
	}
}

// A command that is stopped together with txlock continues together with it.
func TestStopped(t *testing.T) {
	f := onPostgres(t)
	p := f.play(t, "halting", "k")
	p.send(t, "pid")
	child := p.line(t)
	require.NoError(t, p.Process.Signal(syscall.SIGTSTP))
	for _, pid := range []string{strconv.Itoa(p.Process.Pid), child} {
		eventually.True(t, "process "+pid+" to stop", func() bool {
			status := must.Get(os.ReadFile("/proc/" + pid + "/status"))(t)
			return strings.Contains(string(status), "State:\tT")
		})
	}
	require.NoError(t, p.Process.Signal(syscall.SIGCONT))
	require.Equal(t, "SIGCONT", p.line(t))
	p.end(t)
}

func TestLostUnseen(t *testing.T) { each(t, lostUnseen) }

// A lock that is lost while txlock is stopped counts as lost, even if the command ends meanwhile.
func lostUnseen(t *testing.T, e *engine) {
	f := installed(t, e)
	p := f.play(t, "patient", "k")
	p.send(t, "pid")
	pid := p.number(t)
	require.NoError(t, p.Process.Signal(syscall.SIGSTOP))
	f.killSessions(t)
	require.Zero(t, f.run(t, "run", "--wait", "20s", "k", "--", "true").code) // the server has ended the session
	p.send(t, "0")
	gone(t, pid)
	require.NoError(t, p.Process.Signal(syscall.SIGCONT))
	require.Equal(t, 76, p.wait(t))
	require.Contains(t, p.stderr.String(), "k was lost")
}

// So does a lock whose lease ends meanwhile, even if the server stays silent.
func TestLostInSilence(t *testing.T) {
	f := onPostgres(t)
	direct := *f
	proxy := f.proxied(t, 10)
	p := f.play(t, "patient", "k", "--lease", "5s")
	p.send(t, "pid")
	pid := p.number(t)
	require.NoError(t, p.Process.Signal(syscall.SIGSTOP))
	proxy.Behave(silent)
	// The server's timer has ended the session.
	require.Zero(t, direct.run(t, "run", "--wait", "20s", "k", "--", "true").code)
	p.send(t, "5")
	gone(t, pid)
	require.NoError(t, p.Process.Signal(syscall.SIGCONT))
	require.Equal(t, 76, p.wait(t), p.stderr)
}
