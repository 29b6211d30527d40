package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// crew is the worker processes and their reports.
type crew struct {
	plan      plan // for all workers; each gets its own DSN
	dsns      []string
	workers   []*process // one for each number; a restarted worker takes the place of the old
	abandoned sync.WaitGroup

	mu       sync.Mutex
	history  map[operationID]*operation // since the last harvest
	stalls   []fault                    // since the last harvest
	problems []string                   // what workers reported or died of
}

// process is one worker process.
type process struct {
	number, start int
	command       *exec.Cmd
	orders        io.WriteCloser
	events        chan string   // ready, resting, ended
	exited        chan struct{} // closed after its last report
	killed        int64         // when the parent killed it; guarded by crew.mu
}

func newCrew(p plan, dsns []string) *crew {
	return &crew{plan: p, dsns: dsns, workers: make([]*process, len(dsns)), history: map[operationID]*operation{}}
}

// startAll starts the workers and waits until they are connected.
func (c *crew) startAll(ctx context.Context) error {
	for number := range c.workers {
		if err := c.start(number, 0); err != nil {
			return err
		}
	}
	for _, p := range c.workers {
		if err := p.await(ctx, "ready", time.Minute); err != nil {
			return err
		}
	}
	return nil
}

// start starts a worker process, which is this program again.
func (c *crew) start(number, start int) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	plan := c.plan
	plan.Process, plan.Start, plan.DSN = number, start, c.dsns[number]
	text, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	p := &process{number: number, start: start, events: make(chan string, 8), exited: make(chan struct{})}
	p.command = exec.Command(executable)
	p.command.Env = append(os.Environ(), workerVariable+"="+string(text))
	p.command.Stderr = os.Stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that ctrl-C does not reach it: the parent ends it
	if p.orders, err = p.command.StdinPipe(); err != nil {
		return err
	}
	reports, err := p.command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.command.Start(); err != nil {
		return err
	}
	c.workers[number] = p
	c.abandoned.Go(func() { c.listen(p, reports) })
	return nil
}

// listen collects the reports of a worker until it is gone.
func (c *crew) listen(p *process, reports io.Reader) {
	defer close(p.exited)
	lines := bufio.NewScanner(reports)
	lines.Buffer(nil, 1<<20)
	ended := false
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			continue // cut off by a kill; otherwise the worker failed, which is noted below
		}
		switch {
		case m.Operation != nil:
			c.mu.Lock()
			c.history[m.Operation.ID] = m.Operation
			c.mu.Unlock()
		case m.Stall != nil:
			c.stall(*m.Stall)
		default:
			ended = ended || m.Event == "ended"
			if m.Problem != "" {
				c.note(fmt.Sprintf("worker %d left something behind when it had closed all:\n%s", p.number, m.Problem))
			}
			p.events <- m.Event
		}
	}
	err := p.command.Wait()
	c.mu.Lock()
	killed := p.killed
	c.mu.Unlock()
	if killed == 0 && (err != nil || !ended) {
		c.note(fmt.Sprintf("worker %d ended by itself: %v", p.number, err))
	}
}

func (c *crew) stall(s fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalls = append(c.stalls, s)
}

func (c *crew) note(problem string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems = append(c.problems, problem)
}

// kill kills a worker and notes the time. Its operations stay open.
func (c *crew) kill(number int) error {
	p := c.workers[number]
	c.mu.Lock()
	p.killed = now()
	c.mu.Unlock()
	err := p.command.Process.Kill()
	<-p.exited
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.history {
		if o.Return == 0 && o.Process == number && o.Died == 0 {
			o.Died, o.Outcome = p.killed, open // whatever it said on its way
		}
	}
	return err
}

// signal sends a signal to a worker.
func (c *crew) signal(number int, signal os.Signal) error {
	return c.workers[number].command.Process.Signal(signal)
}

// tell sends all workers an order and waits until they report its event.
func (c *crew) tell(ctx context.Context, order, answer string, patience time.Duration) error {
	for _, p := range c.workers {
		if err := json.NewEncoder(p.orders).Encode(message{Event: order}); err != nil {
			return fmt.Errorf("worker %d: %w", p.number, err)
		}
	}
	if answer == "" {
		return nil
	}
	deadline := time.Now().Add(patience)
	var failed []error
	for _, p := range c.workers {
		if err := p.await(ctx, answer, time.Until(deadline)); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// await waits for an event of the worker. If the worker is late, await makes it print the stacks of
// all its goroutines and end.
func (p *process) await(ctx context.Context, event string, patience time.Duration) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case got := <-p.events:
			if got == event {
				return nil
			}
		case <-p.exited:
			for len(p.events) > 0 {
				if <-p.events == event {
					return nil
				}
			}
			return fmt.Errorf("worker %d has ended instead of %q", p.number, event)
		case <-timer.C:
			_ = p.command.Process.Signal(syscall.SIGQUIT)
			<-p.exited
			return fmt.Errorf("worker %d was not %q after %v; its goroutines are printed above", p.number, event,
				patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// harvest returns the history and the stalls since the last harvest.
func (c *crew) harvest() ([]*operation, []fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	history := make([]*operation, 0, len(c.history))
	for _, o := range c.history {
		history = append(history, o)
	}
	stalls := inOrder(c.stalls)
	c.history, c.stalls = map[operationID]*operation{}, nil
	return history, stalls
}

// complaints returns what the workers reported or died of.
func (c *crew) complaints() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	problems := c.problems
	c.problems = nil
	return problems
}

// close kills the workers that still run.
func (c *crew) close() {
	for _, p := range c.workers {
		if p == nil {
			continue
		}
		select {
		case <-p.exited:
		default:
			_ = c.kill(p.number)
		}
	}
	c.abandoned.Wait()
}
