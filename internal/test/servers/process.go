package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// patience is how long processes may take to obey a signal.
const patience = 20 * time.Second

// process is a running server program.
type process struct {
	command *exec.Cmd
	ending  syscall.Signal // makes it shut down at once
	output  bytes.Buffer   // read it only after the end
	exited  chan struct{}  // closed when it has ended
	paused  []int          // its processes while they are paused
	watcher *exec.Cmd      // while they are paused
}

// launch starts a server that dies with this process. The kernel signals it when the thread that
// started it ends, so a goroutine keeps that thread.
func launch(c *exec.Cmd, ending syscall.Signal) (*process, error) {
	p := &process{command: c, ending: ending, exited: make(chan struct{})}
	c.Stdout, c.Stderr = &p.output, &p.output
	c.WaitDelay = patience
	dieWithParent(c.SysProcAttr, ending)
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.Start()
		started <- err
		if err == nil {
			_ = c.Wait()
			close(p.exited)
		}
	}()
	return p, <-started
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// quit ends a server with its ending signal, or, if that fails, by force.
func (p *process) quit() {
	if p.paused == nil { // a paused one does not notice a signal
		_ = p.command.Process.Signal(p.ending)
		select {
		case <-p.exited:
		case <-time.After(patience):
		}
	}
	if p.running() {
		_ = p.kill()
		_ = p.command.Process.Kill()
		<-p.exited
	}
}

// end makes the server end in order, and returns when it has.
func (p *process) end(ending syscall.Signal) error {
	if err := p.command.Process.Signal(ending); err != nil {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("it has not ended %v after signal %v", patience, ending)
	}
}

// kill ends the server without a chance to clean up. It stops all processes first: otherwise those
// of PostgreSQL would end by themselves, and new ones would be missed.
func (p *process) kill() error {
	all, err := freeze(p.command.Process)
	p.unwatch()
	if len(all) > 0 {
		err = errors.Join(err, killAll(all))
	}
	if err != nil {
		return fmt.Errorf("kill all processes of the server: %w", err)
	}
	<-p.exited
	return nil
}

func (p *process) pause() error {
	if p.paused != nil {
		return nil
	}
	all, err := freeze(p.command.Process)
	if err == nil {
		err = p.watch(all)
	}
	if err != nil {
		_ = thaw(all)
		return fmt.Errorf("stop all processes of the server: %w", err)
	}
	p.paused = all
	return nil
}

func (p *process) proceed() error {
	all := p.paused
	p.unwatch()
	return thaw(all)
}

// watch makes the paused processes continue when this one dies: while they are stopped, its death
// does not end them.
func (p *process) watch(all []int) error {
	line := []string{"sh", "-c", `read -r _; kill -CONT "$@"`, "sh"}
	for _, pid := range all {
		line = append(line, strconv.Itoa(pid))
	}
	watcher := command(context.Background(), p.command.Dir, line)
	if _, err := watcher.StdinPipe(); err != nil { // the script only waits for its end
		return err
	}
	if err := watcher.Start(); err != nil {
		return err
	}
	p.watcher = watcher
	return nil
}

func (p *process) unwatch() {
	if p.watcher != nil {
		_ = p.watcher.Process.Kill()
		_ = p.watcher.Wait()
	}
	p.watcher, p.paused = nil, nil
}
