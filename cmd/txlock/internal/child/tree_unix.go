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
func prepare() func(*os.Process) tree {
	parent := nobody
	if adopt() {
		parent = os.Getpid()
	}
	return func(process *os.Process) tree {
		below := descendants{process: process, parent: parent, group: nobody, found: runningAt(process.Pid)}
		go bury(process.Pid)
		if terminal == nil {
			below.group = process.Pid
			return &group{below}
		}
		return &family{below}
	}
}

// descendants are a command and the processes below it.
type descendants struct {
	process *os.Process
	// the process whose only children are the command and its orphans; nobody if it has others
	parent int
	group  int // of the command alone, or nobody
	found  []descendant
	known  bool // whether processes are visible
}

func (d *descendants) look() { d.found, d.known = find(d.found, d.parent, d.group, d.numbered()) }

// numbered reports whether the command was not waited for yet: until then the kernel gives its
// number to no other process or group. A signal that is not permitted does not mean that the
// command has ended.
func (d *descendants) numbered() bool {
	return !errors.Is(d.process.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// left looks again when all known processes have ended: they may have started others.
func (d *descendants) left() bool {
	if d.run() {
		return true
	}
	d.look()
	return d.run()
}

func (d *descendants) run() bool { return slices.ContainsFunc(d.found, descendant.runs) }

// group is a command that leads a group of processes. Processes that it has started may have left
// the group: by timeout, setsid, or a shell's job control.
type group struct{ descendants }

func (g *group) signal(sig os.Signal) {
	g.look()
	g.send(sig)
	if sig == terminate { // a stopped process would not see it
		g.send(continued)
	}
}

// send does not need to see the command in /proc, which may hide it, for example if it is setuid or
// not readable.
func (g *group) send(sig os.Signal) {
	inside := !g.known || g.numbered()
	for _, d := range g.found {
		if d.group == g.group {
			inside = true
		} else {
			d.signal(sig.(syscall.Signal))
		}
	}
	if inside { // otherwise the group may have ended, and its number may be another's
		g.pass(sig)
	}
}

func (g *group) pass(sig os.Signal) { _ = syscall.Kill(-g.group, sig.(syscall.Signal)) }

func (g *group) left() bool {
	return g.descendants.left() || !g.known && syscall.Kill(-g.group, 0) == nil
}

// family is a command in the group of this process, with its descendants.
type family struct{ descendants }

func (f *family) signal(sig os.Signal) {
	f.look()
	f.send(sig.(syscall.Signal))
	if sig == terminate {
		f.send(continued)
	}
}

func (f *family) send(sig syscall.Signal) {
	_ = f.process.Signal(sig)
	for _, d := range f.found {
		if d.pid != f.process.Pid {
			d.signal(sig)
		}
	}
}

// pass leaves out signals that were typed: the terminal has sent them to the command as well.
func (f *family) pass(sig os.Signal) {
	if (sig == syscall.SIGINT || sig == syscall.SIGQUIT) && foreground() {
		return
	}
	_ = f.process.Signal(sig)
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

func (h halt) follow(running tree) {
	running.pass(syscall.SIGTSTP)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
}

func (h halt) close() {
	signal.Stop(h.asked)
	signal.Stop(h.resumed)
}
