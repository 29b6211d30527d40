package main_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/txlock/txlock/internal/eventually"
	"github.com/txlock/txlock/internal/wire"
)

// In some roles the test binary runs a command as others do.
func init() {
	switch os.Getenv(roleVariable) {
	case "negligent": // as process 1 of many a container: it inherits orphans, and never waits for them
		must(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
		c := exec.Command(os.Args[1], os.Args[2:]...)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		_ = c.Run()
		os.Exit(c.ProcessState.ExitCode())
	case "hidden": // as nobody, who sees in /proc only what is his
		must(unix.Mount("proc", "/proc", "proc", 0, "hidepid=2"))
		must(syscall.Setgroups(nil))
		must(syscall.Setgid(65534))
		must(syscall.Setuid(65534))
		must(syscall.Exec(os.Args[1], os.Args[1:], os.Environ()))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// What has ended, but nobody waits for, does not keep a lost lock's txlock.
func TestZombies(t *testing.T) {
	t.Parallel()
	f := installed(t, engines[0])
	c := command([]string{"TXLOCK_DSN=" + f.url, roleVariable + "=negligent"}, "run", "k", "--grace", "1h", "--", "sh",
		"-c", `sleep 1000 & echo $!; wait`)
	c.Path, c.Args = os.Args[0], append([]string{os.Args[0], binary}, c.Args[1:]...)
	p := start(t, c)
	pid, err := strconv.Atoi(p.line(t))
	require.NoError(t, err)
	f.killSessions(t)
	require.Equal(t, 76, p.wait(t))
	gone(t, pid)
}

// An orphan becomes a child of txlock, which waits for it when it ends: nothing is left of it.
func TestOrphans(t *testing.T) {
	t.Parallel()
	f := installed(t, engines[0])
	p := f.start(t, "run", "k", "--", "sh", "-c", `(setsid sh -c 'echo $$; exec sleep 1000' &); cat`)
	pid := p.line(t)
	eventually.True(t, "the daemon to lose its parent", func() bool {
		status, err := os.ReadFile("/proc/" + pid + "/status")
		require.NoError(t, err)
		return strings.Contains(string(status), "PPid:\t"+strconv.Itoa(p.Process.Pid)+"\n")
	})
	number, err := strconv.Atoi(pid)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(number, syscall.SIGKILL))
	eventually.True(t, "nothing to be left of the daemon", func() bool {
		_, err := os.Stat("/proc/" + pid)
		return os.IsNotExist(err)
	})
	p.send(t, "through the pipe") // and the command has not noticed
	require.Equal(t, "through the pipe", p.line(t))
	require.NoError(t, p.stdin.Close())
	require.Zero(t, p.wait(t))
}

// What the process had started before it became txlock is none of the command's, nor what that
// starts and leaves, and outlives a loss.
func TestLostWithOthers(t *testing.T) {
	t.Parallel()
	f := installed(t, engines[0])
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	// Of the command one has left the group and one its parent, and both survive the command.
	c := command([]string{"TXLOCK_DSN=" + f.url}, "run", "k", "--grace", "300ms", "--", "sh", "-c", `
		(sh -c 'trap "" TERM; echo $$; while :; do sleep 0.1; done' &)
		setsid sh -c 'trap "" TERM; echo $$; while :; do sleep 0.1; done' &
		echo $$; wait`)
	c.Args = append([]string{"sh", "-c", `sleep 1000 & echo $!
		sh -c 'read go <"$0"; setsid sh -c "echo \$\$; exec sleep 1000" &' "$0" & echo $!
		exec "$@"`, fifo, binary}, c.Args[1:]...)
	c.Path = "/bin/sh"
	p := start(t, c)
	number := func() int {
		pid, err := strconv.Atoi(p.line(t))
		require.NoError(t, err)
		return pid
	}
	other, parent := number(), number()
	own := []int{number(), number(), number()}
	require.NoError(t, os.WriteFile(fifo, []byte("go\n"), 0)) // it is opened when it is read from
	late := number()
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
		status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		require.NoError(t, err)
		require.False(t, zombie.Match(status))
	}
}

// What a command starts when it is told to end is given the same time, and ended too.
func TestLostWithLate(t *testing.T) {
	t.Parallel()
	f := installed(t, engines[0])
	p := f.start(t, "run", "k", "--grace", "3s", "--", "sh", "-c",
		`trap 'setsid sleep 1000 & echo $!; exit' TERM; echo ready; while :; do sleep 0.05; done`)
	require.Equal(t, "ready", p.line(t))
	f.killSessions(t)
	late, err := strconv.Atoi(p.line(t))
	require.NoError(t, err)
	require.Equal(t, 76, p.wait(t))
	gone(t, late)
}

// Where /proc counts other processes than txlock does, it is not gone by.
func TestForeignProc(t *testing.T) {
	require.Zero(t, os.Getuid(), "only root makes a namespace of processes")
	t.Parallel()
	f := installed(t, engines[0])
	c := command([]string{"TXLOCK_DSN=" + f.url}, "run", "k", "--grace", "1h", "--", "sh", "-c",
		"echo ready; sleep 1000 & wait")
	c.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	p := start(t, c)
	require.Equal(t, "ready", p.line(t))
	f.killSessions(t)
	require.Equal(t, 76, p.wait(t), p.stderr)
}

// A command that /proc hides from txlock's user, a program that he may run but not read, is ended
// all the same.
func TestHiddenProc(t *testing.T) {
	require.Zero(t, os.Getuid(), "only root mounts a /proc")
	t.Parallel()
	f := installed(t, engines[0])
	require.NoError(t, os.Chmod(filepath.Dir(binary), 0o755)) // whatever the umask
	require.NoError(t, os.Chmod(binary, 0o755))
	unreadable := filepath.Join(filepath.Dir(binary), "sh")
	// a file that this process writes is busy while another test forks
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

// On a terminal, where the command shares txlock's group of processes, a daemon is found as well.
func TestLostOnTerminal(t *testing.T) {
	t.Parallel()
	f := installed(t, engines[0])
	s := f.typed(t, nil, "run", "k", "--grace", "300ms", "--", "sh", "-c",
		`(setsid sh -c 'echo =$$=; exec sleep 1000' &); exec sleep 1000`)
	pid, err := strconv.Atoi(strings.Trim(s.see(t, `=\d+=`), "="))
	require.NoError(t, err)
	f.killSessions(t)
	require.Equal(t, 76, s.wait(t))
	gone(t, pid)
}

// A txlock that is killed takes its command with it, for the lock is free then.
func TestKilled(t *testing.T) {
	t.Parallel()
	f := installed(t, engines[0])
	p := f.start(t, "run", "k", "--", "sh", "-c", `echo $$; while :; do sleep 0.05; done`)
	pid, err := strconv.Atoi(p.line(t))
	require.NoError(t, err)
	require.NoError(t, p.Process.Kill())
	gone(t, pid)
	require.Zero(t, f.run(t, "run", "--wait", "20s", "k", "--", "true").code)
}

// A password in an argument does not stay where ps finds it, and the command of run keeps its
// arguments.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, e := range []*engine{engines[0], engines[1]} {
		f := installed(t, e)
		address := f.withPassword(t)
		for _, flag := range []func(url string) []string{
			func(url string) []string { return []string{"--dsn", url} },
			func(url string) []string { return []string{"--dsn=" + url} },
		} {
			arguments := append(flag(address), "run", "k", "--", "sh", "-c", "echo ready; cat", "x://y:kept@z")
			p := start(t, command(nil, arguments...))
			require.Equal(t, "ready", p.line(t))
			shown, err := os.ReadFile("/proc/" + strconv.Itoa(p.Process.Pid) + "/cmdline")
			require.NoError(t, err)
			require.NotContains(t, string(shown), "hush", "it is escaped there")
			require.Contains(t, string(shown), "--dsn")
			require.Contains(t, string(shown), f.database)
			require.True(t, strings.HasSuffix(string(shown), "x://y:kept@z\x00"))
			require.NoError(t, p.stdin.Close())
			require.Zero(t, p.wait(t), p.stderr)
		}
	}
}

// A command that is stopped with txlock goes on with it.
func TestStopped(t *testing.T) {
	t.Parallel()
	f := installed(t, engines[0])
	p := f.play(t, "halting", "k")
	p.send(t, "pid")
	child := p.line(t)
	require.NoError(t, p.Process.Signal(syscall.SIGTSTP))
	for _, pid := range []string{strconv.Itoa(p.Process.Pid), child} {
		eventually.True(t, "process "+pid+" to stop", func() bool {
			status, err := os.ReadFile("/proc/" + pid + "/status")
			require.NoError(t, err)
			return strings.Contains(string(status), "State:\tT")
		})
	}
	require.NoError(t, p.Process.Signal(syscall.SIGCONT))
	require.Equal(t, "SIGCONT", p.line(t))
	p.send(t, "0")
	require.Zero(t, p.wait(t))
}

func TestLostUnseen(t *testing.T) { each(t, lostUnseen) }

// A lock that is lost while txlock is stopped, and the command ends meanwhile, was lost all the
// same.
func lostUnseen(t *testing.T, e *engine) {
	f := installed(t, e)
	p := f.play(t, "patient", "k")
	p.send(t, "pid")
	pid, err := strconv.Atoi(p.line(t))
	require.NoError(t, err)
	require.NoError(t, p.Process.Signal(syscall.SIGSTOP))
	f.killSessions(t)
	require.Zero(t, f.run(t, "run", "--wait", "20s", "k", "--", "true").code) // the server has ended the session
	p.send(t, "0")
	gone(t, pid)
	require.NoError(t, p.Process.Signal(syscall.SIGCONT))
	require.Equal(t, 76, p.wait(t))
	require.Contains(t, p.stderr.String(), "k was lost")
}

// So was one whose lease ended meanwhile, though nothing more is heard of the server.
func TestLostInSilence(t *testing.T) {
	t.Parallel()
	f := installed(t, engines[0])
	u, err := url.Parse(f.url)
	require.NoError(t, err)
	proxy, err := wire.Listen(u.Host)
	require.NoError(t, err)
	u.Host = proxy.Addr()
	p := start(t, command([]string{"TXLOCK_DSN=" + u.String(), roleVariable + "=patient"}, "run", "k", "--lease", "5s",
		"--", os.Args[0]))
	require.Equal(t, "ready", p.line(t))
	p.send(t, "pid")
	pid, err := strconv.Atoi(p.line(t))
	require.NoError(t, err)
	require.NoError(t, p.Process.Signal(syscall.SIGSTOP))
	release := proxy.Hold()
	// by its timer the server has ended the session
	require.Zero(t, f.run(t, "run", "--wait", "20s", "k", "--", "true").code)
	p.send(t, "5")
	gone(t, pid)
	require.NoError(t, p.Process.Signal(syscall.SIGCONT))
	require.Equal(t, 76, p.wait(t), p.stderr)
	release()
	require.NoError(t, proxy.Close())
}
