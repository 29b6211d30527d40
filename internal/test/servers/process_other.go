//go:build !linux

package servers

import (
	"errors"
	"os"
	"syscall"
	"time"
)

const quickly = syscall.SIGINT

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func asNobody() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

func giveAway(string) error { return nil }

func alive(int) bool { return true }

func exclusively(*os.File) error { return nil }

var errLinux = errors.New("this is done on Linux only")

func freeze(*os.Process) ([]int, error) { return nil, errLinux }

func thaw([]int) error { return errLinux }

func usedBy(*os.Process) (time.Duration, error) { return 0, errLinux }

func killAll([]int) error { return errLinux }
