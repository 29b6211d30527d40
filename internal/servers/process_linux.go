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

// nobody is who servers run as when root starts them: PostgreSQL refuses to run as root.
const nobody = 65534

// quickly is the signal to which PostgreSQL shuts down at once. Most others end of it too, some as
// if they had crashed.
const quickly = syscall.SIGQUIT

// ownGroup keeps a ctrl-C away from a child: we stop it.
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

// freeze stops a process and all below it, and returns them. A child is looked for when its parent
// has stopped, and can have no more.
func freeze(top *os.Process) (all []int, err error) {
	if err := top.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	for level := []int{top.Pid}; len(level) > 0; level = childrenOf(level) {
		all = append(all, level...)
		if err := signal(level, syscall.SIGSTOP, 'T'); err != nil {
			return all, err
		}
	}
	return all, nil
}

func thaw(all []int) error { return signal(all, syscall.SIGCONT, 0) }

// killAll returns when all are gone. What nobody collected, as in a container without an init, is
// gone too.
func killAll(all []int) error { return signal(all, syscall.SIGKILL, 'Z') }

// signal signals processes and waits until all their threads are in a state, unless that is 0, or
// have ended.
func signal(all []int, number syscall.Signal, state byte) error {
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

// usedBy is the processor time of the threads of a process and all below it. The scheduler's own
// account is exact where the ticks of utime and stime miss what runs briefly and often, as a server
// does that is asked one thing at a time.
func usedBy(top *os.Process) (used time.Duration, err error) {
	for level := []int{top.Pid}; len(level) > 0; level = childrenOf(level) {
		for _, pid := range level {
			threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
			for _, thread := range threads {
				text, _ := os.ReadFile(thread) // it may have ended just now
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

// status reads the state and the parent from a file stat of /proc. They follow the name, which may
// contain anything.
func status(file string) (state byte, parent int, there bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, 0, false
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	parent, err = strconv.Atoi(fields[1])
	return fields[0][0], parent, err == nil
}
