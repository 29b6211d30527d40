//go:build !unix

package child

import (
	"os"
	"syscall"
)

// There are no signals here but the end of a process, and ctrl-C, which reaches the command by
// itself.
var (
	terminate = os.Kill
	continued = os.Interrupt
)

// Passed are the signals that are passed on to a command.
var Passed = []os.Signal{os.Interrupt}

func attributes() *syscall.SysProcAttr { return nil }

func prepare() func(*os.Process) *tree {
	return func(process *os.Process) *tree { return &tree{process} }
}

// tree is a running command: what it has started cannot be found.
type tree struct{ process *os.Process }

func (t *tree) signal(sig os.Signal) { _ = t.process.Signal(sig) }
func (t *tree) pass(os.Signal)       {}
func (t *tree) left() bool           { return false }

func codeOf(state *os.ProcessState) int { return state.ExitCode() }

type halt struct{ asked, resumed chan os.Signal }

func newHalt() halt         { return halt{} }
func (h halt) follow(*tree) {}
func (h halt) close()       {}
