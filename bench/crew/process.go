package crew

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// variable is the environment variable that marks a worker process.
const variable = "TXLOCK_BENCH_WORKER"

// patience is how long a worker may take to become ready, and to finish after it was told to stop.
// Turns and Footprint are told at once, and measure in this time.
const patience = time.Minute

// Process is a worker process, seen from the parent.
type Process struct {
	command  *exec.Cmd
	orders   *json.Encoder
	input    io.Closer
	messages chan Message
	exited   chan struct{}
}

// Start starts a worker.
func Start() (*Process, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(executable)
	command.Env = append(os.Environ(), variable+"=1")
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that ctrl-C does not reach it: the parent ends it
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &Process{
		command: command, orders: json.NewEncoder(input), input: input,
		messages: make(chan Message, 16), exited: make(chan struct{}),
	}
	go p.listen(output)
	return p, nil
}

func (p *Process) listen(output io.Reader) {
	messages := json.NewDecoder(bufio.NewReader(output))
	for {
		var m Message
		if messages.Decode(&m) != nil { // the worker ended, or was killed in the middle of a message
			break
		}
		p.messages <- m
	}
	_ = p.command.Wait()
	close(p.exited)
}

// Give gives the worker a job, and returns when it is ready to begin.
func (p *Process) Give(ctx context.Context, job Job) error {
	if err := p.orders.Encode(job); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	_, err := p.Await(ctx, Ready, patience)
	return err
}

// Tell sends an order.
func (p *Process) Tell(order Order) error {
	if err := p.orders.Encode(order); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	return nil
}

// ErrLate occurs when a worker did not report in time.
var ErrLate = errors.New("no answer in time")

// Await waits for an event. A message with an error, whatever its event, is returned as that error.
func (p *Process) Await(ctx context.Context, event Event, within time.Duration) (Message, error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case m := <-p.messages:
			if m.Error != "" {
				return m, errors.New(m.Error)
			}
			if m.Event == event {
				return m, nil
			}
		case <-p.exited:
			return Message{}, fmt.Errorf("worker: ended instead of %q", event)
		case <-timer.C:
			return Message{}, fmt.Errorf("worker: not %q after %v: %w", event, within, ErrLate)
		case <-ctx.Done():
			return Message{}, context.Cause(ctx)
		}
	}
}

// Signal sends a signal to the worker.
func (p *Process) Signal(signal syscall.Signal) error { return p.command.Process.Signal(signal) }

// Kill kills the worker, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.command.Process.Kill()
	p.awaitExit()
}

// Close ends the worker: it ends when its input does.
func (p *Process) Close() {
	_ = p.input.Close()
	late := time.AfterFunc(3*time.Second, func() { _ = p.command.Process.Kill() })
	defer late.Stop()
	p.awaitExit()
}

func (p *Process) awaitExit() {
	for {
		select {
		case <-p.messages:
		case <-p.exited:
			return
		}
	}
}
