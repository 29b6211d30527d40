package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/txlock/txlock/internal/test/shop"
)

const (
	// replays is how often the orders of the file are placed, as new orders each time.
	replays   = 10
	processes = 4
	// copies is how often each order is submitted.
	copies = 2
	// runLimit ends a run that hangs.
	runLimit = 2 * time.Minute
)

var errHangs = fmt.Errorf("the run did not end within %v", runLimit)

// answer is a worker's answer to a submitted order.
type answer struct {
	outcome   shop.Outcome
	deadlocks int
}

// process is a worker process, which is this program run again.
type process struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Scanner
}

// placeAll submits all orders to a crew of processes, and passes their answers to hear. It returns
// how long the orders took, without the start of the processes. When it returns, the processes have
// ended.
func placeAll(ctx context.Context, w way, dsn string, orders []shop.Order, hear func(answers <-chan answer)) (
	time.Duration, error,
) {
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, errHangs)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	crew, err := hire(ctx, w, dsn)
	defer dismiss(crew)
	if err != nil {
		return 0, err
	}
	started := time.Now()
	answers := make(chan answer)
	var group sync.WaitGroup
	for i, p := range crew {
		group.Go(func() {
			if err := p.submit(share(i, len(orders)), answers); err != nil {
				stop(err)
			}
		})
	}
	go func() {
		group.Wait()
		close(answers)
	}()
	hear(answers)
	return time.Since(started), context.Cause(ctx)
}

// hire starts a crew, and returns when all of it is ready. With an error, it returns the processes
// that were started.
func hire(ctx context.Context, w way, dsn string) (crew []*process, err error) {
	for range processes {
		p, err := startProcess(ctx, w, dsn)
		if err != nil {
			return crew, err
		}
		crew = append(crew, p)
	}
	for _, p := range crew {
		if !p.ready() {
			return crew, cmp.Or(context.Cause(ctx), errors.New("a worker process did not start"))
		}
	}
	return crew, nil
}

// share returns the indices of the orders that a process gets. Each order goes to one process, and
// a second time to the next.
func share(process, orders int) []int {
	var indices []int
	for index := range orders {
		for again := range copies {
			if (index+again)%processes == process {
				indices = append(indices, index)
			}
		}
	}
	return indices
}

func startProcess(ctx context.Context, w way, dsn string) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, program, "worker", string(w), dsn)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	command.Cancel = input.Close
	command.WaitDelay = 3 * time.Second
	return &process{command, input, bufio.NewScanner(output)}, command.Start()
}

func (p *process) ready() bool { return p.output.Scan() && p.output.Text() == "ready" }

// submit returns when all orders have been answered.
func (p *process) submit(indices []int, answers chan<- answer) error {
	requests := bufio.NewWriter(p.input)
	for _, index := range indices {
		fmt.Fprintln(requests, index)
	}
	if err := requests.Flush(); err != nil {
		return fmt.Errorf("a worker process ended: %w", err)
	}
	for range indices {
		if !p.output.Scan() {
			return errors.New("a worker process ended before its work")
		}
		var a answer
		if _, err := fmt.Sscan(p.output.Text(), &a.outcome, &a.deadlocks); err != nil {
			return fmt.Errorf("bug: a worker process answered %q: %w", p.output.Text(), err)
		}
		answers <- a
	}
	return nil
}

// dismiss returns when the processes have ended.
func dismiss(crew []*process) {
	for _, p := range crew {
		_ = p.input.Close()
	}
	for _, p := range crew {
		_ = p.command.Wait()
	}
}
