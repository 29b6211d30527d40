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

// endWithParent has the kernel end the command when this process dies without having ended it,
// killed by the kernel for want of memory say: the server gives the lock to another at once then.
// SIGKILL, because nobody would be there to send a second signal.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// adopt makes this process the parent of what loses its own below it. A daemon would become a child
// of the system's first process otherwise, and nobody could tell any more whose it was. It does not
// where there are children already, of the program that was this process before: their orphans
// would come here, too, and look like the command's.
func adopt() bool {
	for {
		pid, err := endedChild()
		if errors.Is(err, unix.ECHILD) {
			return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil // of the process, whichever thread asks
		}
		if err != nil || pid == 0 {
			return false
		}
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	}
}

// bury waits for orphans that have ended, or the kernel would keep what is left of them. The
// command is left to whoever waits for that.
func bury(command int) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	for {
		switch pid, _ := endedChild(); pid {
		case 0:
			<-ended
		case command:
			time.Sleep(beat) // it hides the others until then
		default:
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}
}

// endedChild is a child that has ended and was not waited for, 0 if there is none. It stays so.
// ECHILD says that there are no children at all.
func endedChild() (pid int, err error) {
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		return 0, err
	}
	// Behind three numbers stands a union that is aligned as a pointer, and begins with the
	// process: see sigaction(2).
	return int((*struct {
		_   [3]int32
		_   [0]uintptr
		pid int32
	})(unsafe.Pointer(&info)).pid), nil
}

// descendant is a process below this one. When it began tells it from another that gets its number
// later.
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

// runningAt is the process that has a number, if that is seen to run.
func runningAt(pid int) []descendant {
	if s, found := statOf(pid); found && !s.zombie {
		return []descendant{s.descendant()}
	}
	return nil
}

// find finds what of before still runs, the children of parent, the members of group if that is
// theirs, and what runs below all these. The group is theirs when the caller knows it, or one of
// them is in it. Nothing is found where processes are not known.
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

// stat is what the kernel tells of a process.
type stat struct {
	pid, parent, group int
	began              string
	zombie             bool
}

func (s stat) descendant() descendant { return descendant{s.pid, s.group, s.began} }

// processes are all that there are: none where /proc is not mounted, or is that of another
// namespace, in which numbers mean others.
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

// statOf reads /proc/pid/stat, see proc(5): behind the name, which is in parentheses and may hold
// some, are the state, the parent, the group, and as the 22nd field when it began.
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
