//go:build unix

package child

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	terminate = syscall.SIGTERM
	continued = syscall.SIGCONT
)

// Passed are the signals that are passed on to a command.
var Passed = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
}

// terminal is the terminal of this process, or nil.
//
// With a terminal the command shares the group of this process, as it would under env or time:
// ctrl-C and ctrl-Z reach both, the shell's job control and pipelines work, and the command may
// read the terminal. Without one, in a cron job say, the command leads a group of its own, so that
// all of it can be ended.
var terminal = func() *os.File {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return tty
}()

// foreground reports whether keys that are typed at the terminal go to the group of this process.
func foreground() bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: terminal == nil}
	endWithParent(a)
	return a
}

// nobody is the number of no process and no group.
const nobody = -1

// prepare is called before the command starts. The function that it returns is called after that.
func prepare() func(*os.Process) *tree {
	parent := nobody
	if adopt() {
		parent = os.Getpid()
	}
	return func(process *os.Process) *tree {
		t := &tree{process: process, parent: parent, group: nobody, found: runningAt(process.Pid)}
		if terminal == nil {
			t.group = process.Pid
		}
		go bury(process.Pid)
		return t
	}
}

// tree is a running command and the processes below it, as far as the system lets us find them.
// Some may have left its group: by timeout, setsid, or a shell's job control.
type tree struct {
	process *os.Process
	// the process whose only children are the command and its orphans; nobody if it has others
	parent int
	group  int // that the command leads; nobody if it is in the group of this process
	found  []descendant
	known  bool // whether processes are visible
}

func (t *tree) look() { t.found, t.known = find(t.found, t.parent, t.group, t.numbered()) }

// numbered reports whether the command was not waited for yet: until then the kernel gives its
// number to no other process or group. A signal that is not permitted does not mean that the
// command has ended.
func (t *tree) numbered() bool {
	return !errors.Is(t.process.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// left reports, after the end of the command itself, whether others still run. It looks again when
// all known processes have ended: they may have started others.
func (t *tree) left() bool {
	if t.run() {
		return true
	}
	t.look()
	return t.run() || t.group != nobody && !t.known && syscall.Kill(-t.group, 0) == nil
}

func (t *tree) run() bool { return slices.ContainsFunc(t.found, descendant.runs) }

// signal sends a signal to all of them.
func (t *tree) signal(sig os.Signal) {
	t.look()
	t.send(sig)
	if sig == terminate { // a stopped process would not see it
		t.send(continued)
	}
}

// send does not need to see the command in /proc, which may hide it, for example if it is setuid or
// not readable.
func (t *tree) send(sig os.Signal) {
	leads := t.group != nobody
	inside := !leads || !t.known || t.numbered()
	for _, d := range t.found {
		switch {
		case leads && d.group == t.group:
			inside = true
		case leads || d.pid != t.process.Pid:
			d.signal(sig.(syscall.Signal))
		}
	}
	if inside { // otherwise the group may have ended, and its number may be another's
		t.pass(sig)
	}
}

// pass hands a signal on that this process got. It leaves out signals that were typed: the terminal
// has sent them to the command as well.
func (t *tree) pass(sig os.Signal) {
	switch {
	case t.group != nobody:
		_ = syscall.Kill(-t.group, sig.(syscall.Signal))
	case (sig == syscall.SIGINT || sig == syscall.SIGQUIT) && foreground():
	default:
		_ = t.process.Signal(sig)
	}
}

// codeOf returns the exit code as shells do.
func codeOf(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// halt makes a command in a group of its own stop and continue together with this process. With a
// terminal the kernel does that.
type halt struct{ asked, resumed chan os.Signal }

func newHalt() halt {
	h := halt{make(chan os.Signal, 1), make(chan os.Signal, 1)}
	if terminal == nil {
		signal.Notify(h.asked, syscall.SIGTSTP)
		signal.Notify(h.resumed, syscall.SIGCONT)
	}
	return h
}

func (h halt) follow(running *tree) {
	running.pass(syscall.SIGTSTP)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
}

func (h halt) close() {
	signal.Stop(h.asked)
	signal.Stop(h.resumed)
}
