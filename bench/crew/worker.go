package crew

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/txlock/txlock/bench/contest"
)

// WorkIfWorker runs jobs and does not return if this process is a worker.
func WorkIfWorker() {
	if os.Getenv(variable) == "" {
		return
	}
	// Client libraries log every lost connection, and the faults lose connections on purpose.
	log.SetOutput(io.Discard)
	_ = mysql.SetLogger(log.Default())
	go endWithParent(os.Getppid())
	w := &worker{input: json.NewDecoder(bufio.NewReader(os.Stdin)), output: json.NewEncoder(os.Stdout)}
	if err := w.work(); err != nil {
		fmt.Fprintln(os.Stderr, "bench worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// endWithParent ends the process soon after its parent has ended, even if the worker is blocked.
func endWithParent(parent int) {
	for os.Getppid() == parent {
		time.Sleep(time.Second)
	}
	os.Exit(1)
}

// worker does one job after the other.
type worker struct {
	input *json.Decoder

	mu     sync.Mutex // for goroutines of a job, which report too
	output *json.Encoder
}

// work returns when its input ends: the parent closed it, or died.
func (w *worker) work() error {
	for {
		var job Job
		err := w.input.Decode(&job)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		report, err := w.do(job)
		if err != nil {
			report.Error = err.Error()
		}
		report.Event = Done
		w.say(report)
	}
}

func (w *worker) do(job Job) (Message, error) {
	switch {
	case job.Turns != nil:
		return w.turns(*job.Turns)
	case job.Contend != nil:
		return w.contend(*job.Contend)
	case job.Guard != nil:
		return w.guard(*job.Guard)
	case job.Crowd != nil:
		return w.crowd(*job.Crowd)
	case job.Sell != nil:
		return w.sell(*job.Sell)
	case job.Footprint != nil:
		return w.footprint(*job.Footprint)
	}
	return Message{}, errors.New("bug: a job without work")
}

func (w *worker) say(m Message) {
	m.At = Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.output.Encode(m); err != nil { // the parent is gone
		os.Exit(1)
	}
}

// begin reports that the worker is ready, and waits for Go.
func (w *worker) begin() error {
	w.say(Message{Event: Ready})
	return w.expect(Go)
}

func (w *worker) expect(order Order) error {
	var got Order
	if err := w.input.Decode(&got); err != nil {
		return fmt.Errorf("the parent is gone: %w", err)
	}
	if got != order {
		return fmt.Errorf("bug: order %q instead of %q", got, order)
	}
	return nil
}

// untilStopped returns a context that ends with the order to stop. wait returns when that order was
// read.
func (w *worker) untilStopped() (ctx context.Context, wait func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() {
		defer cancel()
		stopped <- w.expect(Stop)
	}()
	return ctx, func() error { return <-stopped }
}

// open opens a client of the contestant.
func (e Entrant) open(ctx context.Context) (contest.Client, error) {
	c, err := contest.Find(e.Contestant)
	if err != nil {
		return nil, err
	}
	client, err := c.Open(ctx, e.Environment)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", c.Name, err)
	}
	return client, nil
}
