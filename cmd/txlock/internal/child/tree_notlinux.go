//go:build unix && !linux

package child

import "syscall"

// endWithParent: only Linux can.
func endWithParent(*syscall.SysProcAttr) {}

func adopt() bool { return false }
func bury(int)    {}

// descendant is what only Linux tells.
type descendant struct{ pid, group int }

func (descendant) runs() bool            { return false }
func (descendant) signal(syscall.Signal) {}

func runningAt(int) []descendant { return nil }

func find([]descendant, int, int, bool) (_ []descendant, known bool) { return nil, false }
