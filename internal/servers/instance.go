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

// instance is a private server. Its process is another one after each restart.
type instance struct {
	folder string
	run    []string
	ending syscall.Signal

	mu      sync.Mutex
	process *process
	removed bool
}

// restart starts the server, after it has ended it if it runs, and waits until it answers.
func (i *instance) restart(ctx context.Context, answers probe) error {
	started, err := i.launch(ctx)
	if err != nil {
		return err
	}
	// Not under the lock: a server that does not come up can be killed and stopped.
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

// whileRunning does something to the process of a server that runs.
func (i *instance) whileRunning(do func(*process) error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.process == nil || !i.process.running() {
		return errors.New("the server does not run")
	}
	return do(i.process)
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

// releaseMemory removes the shared memory that PostgreSQL did not live to remove. It is the second
// number of line 7.
func releaseMemory(folder string) {
	text, err := os.ReadFile(filepath.Join(dataIn(folder), "postmaster.pid"))
	if lines := strings.Split(string(text), "\n"); err == nil && len(lines) > 6 {
		if numbers := strings.Fields(lines[6]); len(numbers) == 2 {
			_ = exec.Command("ipcrm", "-m", numbers[1]).Run()
		}
	}
}

// whenReady waits until a server that was just started answers, or has ended.
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
