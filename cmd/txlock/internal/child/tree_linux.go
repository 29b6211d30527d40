package child

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// endWithParent has the kernel end the command when this process dies first, for example when the
// kernel kills it for want of memory: the server then gives the lock to another at once. It is
// SIGKILL, because nobody could send a second signal.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// adopt makes this process the parent of orphans below it. Otherwise a daemon would become a child
// of the system's first process, and nobody could tell who had started it. If this process already
// has children, from the program that ran in it before, adopt does nothing: their orphans would
// look like those of the command.
func adopt() bool {
	for {
		pid, err := endedChild()
		if errors.Is(err, unix.ECHILD) {
			// holds for the process, whichever thread asks
			return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil
		}
		if err != nil || pid == 0 {
			return false
		}
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	}
}

// bury waits for orphans that have ended: otherwise they would stay as zombies. It leaves the
// command itself to its own waiter.
func bury(command int) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	for {
		switch pid, _ := endedChild(); pid {
		case 0:
			<-ended
		case command:
			time.Sleep(beat) // until its waiter has collected it, it hides the others
		default:
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}
}

// endedChild returns a child that has ended and was not waited for, or 0. It does not wait for it
// either. ECHILD means that there are no children at all.
func endedChild() (pid int, err error) {
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		return 0, err
	}
	// After three numbers comes a union, aligned like a pointer, that begins with the process: see
	// sigaction(2).
	return int((*struct {
		_   [3]int32
		_   [0]uintptr
		pid int32
	})(unsafe.Pointer(&info)).pid), nil
}

// descendant is a process below this one. The time of its start tells it from a later process with
// the same number.
type descendant struct {
	pid   int
	group int
	began string
}

func (d descendant) runs() bool {
	now, found := statOf(d.pid)
	return found && now.began == d.began && !now.zombie
}

func (d descendant) signal(sig syscall.Signal) {
	if d.runs() {
		_ = syscall.Kill(d.pid, sig)
	}
}

// runningAt returns the process with a number, if it is visible and runs.
func runningAt(pid int) []descendant {
	if s, found := statOf(pid); found && !s.zombie {
		return []descendant{s.descendant()}
	}
	return nil
}

// find returns those of before that still run, the children of parent, the members of group if the
// group is theirs, and all processes below these. The group is theirs if the caller says so, or if
// one of them is in it. known is false if no processes are visible.
func find(before []descendant, parent, group int, theirs bool) (found []descendant, known bool) {
	all := processes()
	inside := map[int]bool{parent: true}
	for grown := true; grown; {
		grown = false
		for _, s := range all {
			is := func(d descendant) bool { return d.pid == s.pid && d.began == s.began }
			belongs := inside[s.parent] || theirs && s.group == group || slices.ContainsFunc(before, is)
			if !belongs || inside[s.pid] || s.zombie {
				continue
			}
			found = append(found, s.descendant())
			inside[s.pid], grown = true, true
			theirs = theirs || s.group == group
		}
	}
	return found, len(all) > 0
}

// stat is what the kernel tells about a process.
type stat struct {
	pid, parent, group int
	began              string
	zombie             bool
}

func (s stat) descendant() descendant { return descendant{s.pid, s.group, s.began} }

// processes returns all processes: none if /proc is not mounted, or belongs to another namespace,
// where numbers mean other processes.
func processes() (all []stat) {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if s, found := statOf(pid); found {
			all = append(all, s)
		}
	}
	return all
}

// statOf reads /proc/pid/stat, see proc(5). The name is in parentheses and may contain some. After
// it come the state, the parent, the group, and, as field 22, the time of the start.
func statOf(pid int) (s stat, found bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if err != nil || len(fields) < 20 {
		return stat{}, false
	}
	s = stat{pid: pid, began: string(fields[19]), zombie: fields[0][0] == 'Z' || fields[0][0] == 'X'}
	s.parent, _ = strconv.Atoi(string(fields[1]))
	s.group, _ = strconv.Atoi(string(fields[2]))
	return s, true
}
