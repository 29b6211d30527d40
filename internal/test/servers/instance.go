package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// instance is a private server. It has a new process after each restart.
type instance struct {
	folder string
	run    []string
	ending syscall.Signal

	mu      sync.Mutex
	process *process
	removed bool
}

// restart ends the server if it runs, starts it, and waits until it answers.
func (i *instance) restart(ctx context.Context, answers probe) error {
	started, err := i.launch(ctx)
	if err != nil {
		return err
	}
	// Without the mutex, so that a server that does not come up can be killed and stopped.
	if err := started.whenReady(ctx, answers); err != nil {
		i.mu.Lock()
		defer i.mu.Unlock()
		started.quit()
		return fmt.Errorf("%s: %w: %s", i.run[0], err, lastLines(started.output.Bytes()))
	}
	return nil
}

func (i *instance) launch(ctx context.Context) (*process, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.removed {
		return nil, errors.New("the server was stopped, and its data removed")
	}
	if i.process != nil {
		i.process.quit()
	}
	started, err := launch(command(context.WithoutCancel(ctx), i.folder, i.run), i.ending)
	if err != nil {
		return nil, err
	}
	i.process = started
	return started, nil
}

// whileRunning calls do with the process of a running server.
func (i *instance) whileRunning(do func(*process) error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.process == nil || !i.process.running() {
		return errors.New("the server does not run")
	}
	return do(i.process)
}

// rebuild replaces the data of a server that has ended by what a command line creates.
func (i *instance) rebuild(ctx context.Context, setup []string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.removed || i.process != nil && i.process.running() {
		return errors.New("the server still runs, or was stopped for good")
	}
	releaseMemory(i.folder)
	if err := os.RemoveAll(dataIn(i.folder)); err != nil {
		return err
	}
	return i.setUp(ctx, setup)
}

func (i *instance) setUp(ctx context.Context, line []string) error {
	if text, err := command(ctx, i.folder, line).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line[0], err, lastLines(text))
	}
	return nil
}

// remove ends the server and removes its data.
func (i *instance) remove() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.removed = true
	if i.process != nil {
		i.process.quit()
	}
	releaseMemory(i.folder)
	return os.RemoveAll(i.folder)
}

// releaseMemory removes the shared memory that a killed PostgreSQL has left. Its number is the
// second one in line 7 of postmaster.pid.
func releaseMemory(folder string) {
	text, err := os.ReadFile(filepath.Join(dataIn(folder), "postmaster.pid"))
	if lines := strings.Split(string(text), "\n"); err == nil && len(lines) > 6 {
		if numbers := strings.Fields(lines[6]); len(numbers) == 2 {
			_ = exec.Command("ipcrm", "-m", numbers[1]).Run()
		}
	}
}

// whenReady waits until the server answers. It fails when the server has ended.
func (p *process) whenReady(ctx context.Context, answers probe) error {
	ctx, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	go func() {
		select {
		case <-p.exited:
			ended(errors.New("the server ended"))
		case <-ctx.Done():
		}
	}()
	return answers.wait(ctx)
}
