package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// nobody is the user of servers that root starts: PostgreSQL refuses to run as root.
const nobody = 65534

// quickly is the signal that makes PostgreSQL shut down at once. It ends other databases too, some
// as if they had crashed.
const quickly = syscall.SIGQUIT

// ownGroup keeps a ctrl-C away from a child. This process stops the child itself.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func asNobody() *syscall.SysProcAttr {
	attributes := ownGroup()
	if os.Getuid() == 0 {
		attributes.Credential = &syscall.Credential{Uid: nobody, Gid: nobody, NoSetGroups: false}
	}
	return attributes
}

func dieWithParent(attributes *syscall.SysProcAttr, ending syscall.Signal) {
	attributes.Pdeathsig = ending
}

func giveAway(path string) error {
	if os.Getuid() != 0 {
		return nil
	}
	return os.Chown(path, nobody, nobody)
}

func alive(pid int) bool { return syscall.Kill(pid, 0) != syscall.ESRCH }

// exclusively locks a file until the process ends or it is closed.
func exclusively(file *os.File) error { return syscall.Flock(int(file.Fd()), syscall.LOCK_EX) }

// freeze stops a process and all processes below it, and returns them. It looks for children after
// their parent has stopped, and cannot start more.
func freeze(top *os.Process) (all []int, err error) {
	if err := top.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	for level := []int{top.Pid}; len(level) > 0; level = childrenOf(level) {
		all = append(all, level...)
		if err := send(level, syscall.SIGSTOP, 'T'); err != nil {
			return all, err
		}
	}
	return all, nil
}

func thaw(all []int) error { return send(all, syscall.SIGCONT, 0) }

// killAll returns when all are gone. A zombie counts as gone: in a container without an init,
// nobody collects it.
func killAll(all []int) error { return send(all, syscall.SIGKILL, 'Z') }

// send signals processes and waits until all their threads have ended or are in a state. If the
// state is 0, it does not wait.
func send(all []int, number syscall.Signal, state byte) error {
	for _, pid := range all {
		if err := syscall.Kill(pid, number); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("%v to process %d: %w", number, pid, err)
		}
	}
	if state == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, pid := range all {
		err := poll(ctx, time.Millisecond, func() error {
			threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
			for _, thread := range threads {
				if now, _, there := status(thread); there && !bytes.Contains([]byte{state, 'Z', 'X'}, []byte{now}) {
					return fmt.Errorf("process %d is in state %c", pid, now)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func childrenOf(parents []int) (children []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		if _, parent, there := status(file); there && slices.Contains(parents, parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			children = append(children, pid)
		}
	}
	return children
}

// usedBy is the processor time of a process and all processes below it. It reads the exact account
// of the scheduler: the ticks of utime and stime miss short runs, such as those of a server that
// answers one request at a time.
func usedBy(top *os.Process) (used time.Duration, err error) {
	for level := []int{top.Pid}; len(level) > 0; level = childrenOf(level) {
		for _, pid := range level {
			threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
			for _, thread := range threads {
				text, _ := os.ReadFile(thread) // the thread may have ended just now
				ran, _, _ := strings.Cut(string(text), " ")
				nanoseconds, _ := strconv.ParseInt(ran, 10, 64)
				used += time.Duration(nanoseconds)
			}
		}
	}
	if used == 0 {
		return 0, errors.New("it has ended, or this kernel keeps no account (CONFIG_SCHED_INFO)")
	}
	return used, nil
}

// status reads the state and the parent from a stat file in /proc. They come after the name, which
// may contain anything.
func status(file string) (state byte, parent int, there bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, 0, false
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	parent, err = strconv.Atoi(fields[1])
	return fields[0][0], parent, err == nil
}
