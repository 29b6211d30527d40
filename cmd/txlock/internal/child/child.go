// Package child runs a command as the child of a process that guards it: it passes signals on, and
// ends the command, with what the command has started, when told to.
package child

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// What shells exit with for a command that they cannot run.
const (
	CodeNotExecutable = 126
	CodeNotFound      = 127
)

// Find looks a command up as a shell does. Code is what to exit with when err is not nil.
func Find(name string) (path string, code int, err error) {
	path, err = exec.LookPath(name)
	switch {
	case err == nil:
		return path, 0, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrDot):
		return "", CodeNotFound, err
	}
	return "", CodeNotExecutable, err
}

// Command is a command to run.
type Command struct {
	Path string
	Args []string // with the name of the command in front
	Env  []string

	// Signals are passed on, but for those that the terminal has sent to the command itself.
	Signals <-chan os.Signal
	// Stop ends the command: with SIGTERM, and what is left of it after Grace with SIGKILL.
	// Stopping is called then, to tell of it.
	Stop     <-chan struct{}
	Grace    time.Duration
	Stopping func()
}

// Result is how a command ended.
type Result struct {
	Code    int  // its exit code, or 128 and the number of the signal that ended it
	Stopped bool // it was ended because Stop was closed
	Killed  bool // it took SIGKILL
}

// tree is a running command with what it has started, as far as the system lets us find that.
type tree interface {
	// signal sends to all of it.
	signal(os.Signal)
	// pass hands a signal of this process on.
	pass(os.Signal)
	// left reports whether something of it still runs, when the command itself has ended.
	left() bool
}

// Run runs a command with this process's standard input and outputs and returns when it has ended;
// where it was stopped, when what it had started has ended too. An error means that it could not be
// started.
func Run(c Command) (Result, error) {
	stops := newHalt() // before the command begins: what stopped this process alone would leave the command running
	defer stops.close()
	started, exited := make(chan started), make(chan Result, 1)
	go start(c, started, exited)
	s := <-started
	if s.err != nil {
		return Result{}, s.err
	}
	return c.attend(s.tree, stops, exited), nil
}

type started struct {
	tree tree
	err  error
}

// start stays on one thread of the system until the command has ended: with the death of that
// thread the kernel would end the command.
func start(c Command, report chan<- started, exited chan<- Result) {
	runtime.LockOSThread()
	treeOf := prepare()
	process, err := os.StartProcess(c.Path, c.Args, &os.ProcAttr{
		Env: c.Env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attributes(),
	})
	if err != nil {
		report <- started{err: err}
		return
	}
	report <- started{tree: treeOf(process)}
	state, err := process.Wait()
	if err != nil { // somebody else has waited for it
		exited <- Result{Code: 1}
		return
	}
	exited <- Result{Code: codeOf(state)}
}

// attend passes signals on until the command has ended, or is to be stopped.
func (c Command) attend(running tree, stops halt, exited <-chan Result) Result {
	for {
		select {
		case sig := <-c.Signals:
			running.pass(sig)
		case <-stops.asked:
			stops.follow(running)
		case <-stops.resumed:
			running.pass(continued)
		case <-c.Stop:
			return c.stop(running, exited)
		case result := <-exited:
			return result
		}
	}
}

const (
	// beat is how often is looked whether anything of a stopped command is left.
	beat = 10 * time.Millisecond
	// tellFor is how long is waited for Stopping to return.
	tellFor = time.Second
	// killFor is how long what the command has started may take to end by SIGKILL: what is in the
	// kernel, or another user's, may not.
	killFor = time.Second
)

// stop ends the command and what it has started.
func (c Command) stop(running tree, exited <-chan Result) Result {
	running.signal(terminate)
	told := make(chan struct{})
	go func() { // a terminal that was halted by ctrl-S must not save the command
		defer close(told)
		c.Stopping()
	}()
	patience, look := time.After(c.Grace), time.NewTicker(beat)
	defer look.Stop()
	var enough <-chan time.Time
	result, ended, killed, left := Result{}, false, false, true
	for !ended || left && running.left() {
		select {
		case sig := <-c.Signals:
			running.pass(sig)
		case <-patience:
			killed = true
			running.signal(os.Kill)
			enough = time.After(killFor)
		case <-enough:
			left = false
		case result = <-exited:
			ended = true
		case <-look.C:
			if killed { // what was begun while the others were killed
				running.signal(os.Kill)
			}
		}
	}
	select {
	case <-told:
	case <-time.After(tellFor):
	}
	return Result{Code: result.Code, Stopped: true, Killed: killed}
}
