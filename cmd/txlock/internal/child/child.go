// Package child runs a command as the child of this process. It passes signals on to the command,
// and ends the command and the processes that it has started when told to.
package child

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// The exit codes of shells for a command that they cannot run.
const (
	CodeNotExecutable = 126
	CodeNotFound      = 127
)

// Find looks a command up as a shell does. Code is the exit code if err is not nil.
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

	// Signals are passed on, except those that the terminal has sent to the command as well.
	Signals <-chan os.Signal
	// Stop ends the command: with SIGTERM, and what is left after Grace with SIGKILL. Stopping is
	// called when that begins.
	Stop     <-chan struct{}
	Grace    time.Duration
	Stopping func()
}

// Result is how a command ended.
type Result struct {
	Code    int  // its exit code, or 128 and the number of the signal that ended it
	Stopped bool // it was ended because Stop was closed
	Killed  bool // SIGKILL was needed
}

// Run runs a command with this process's standard input and outputs, and returns when it has ended.
// If it was stopped, Run also waits for the processes that it has started. An error means that the
// command could not be started.
func Run(c Command) (Result, error) {
	stops := newHalt() // before the command starts: a stop in between would stop this process only
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
	tree *tree
	err  error
}

// start keeps its thread until the command has ended: when that thread ends, the kernel ends the
// command.
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
	if err != nil { // it was waited for elsewhere
		exited <- Result{Code: 1}
		return
	}
	exited <- Result{Code: codeOf(state)}
}

// attend passes signals on until the command has ended. If Stop is closed, it stops the command.
func (c Command) attend(running *tree, stops halt, exited <-chan Result) Result {
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
	// beat is the interval of looking for what is left of a stopped command.
	beat = 10 * time.Millisecond
	// tellFor limits the wait for Stopping to return.
	tellFor = time.Second
	// killFor limits the wait for processes to end by SIGKILL. One that hangs in the kernel, or
	// belongs to another user, may not end.
	killFor = time.Second
)

// stop ends the command and what it has started.
func (c Command) stop(running *tree, exited <-chan Result) Result {
	running.signal(terminate)
	told := make(chan struct{})
	go func() { // a terminal that ctrl-S has halted must not delay the end of the command
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
			if killed { // processes that started while others were killed
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
