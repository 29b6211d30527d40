package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/goleak"

	"github.com/txlock/txlock/internal/test/leaks"
	"github.com/txlock/txlock/internal/test/servers"
)

// workerVariable is the environment variable with the plan of a worker. A process that has it is a
// worker.
const workerVariable = "TXLOCK_TORTURE_WORKER"

// plan is what a worker is given at its start.
type plan struct {
	Kind     servers.Kind
	DSN      string
	Handmade bool
	Lease    time.Duration
	Process  int
	Start    int // number of earlier starts of this process
	Seed     int64
	Galera   bool // which keeps fewer kinds of locks
	Jobs     bool // are done, and nothing else
}

// subject is the lock that is tortured.
type subject interface {
	// verbs are the operations to choose from. An operation occurs as often as its share.
	verbs() []verb
	// run does one operation and records in it what happens. tell reports its present state.
	run(ctx context.Context, o *operation, random *rand.Rand, tell func())
	close() error
}

// worker is a process that uses the lock in several goroutines.
type worker struct {
	plan     plan
	subject  subject
	sequence atomic.Int64
	ending   atomic.Bool
	clock    *clock
	// gate is held for reading during an operation, and for writing while the worker rests.
	gate sync.RWMutex

	mu  sync.Mutex
	out *json.Encoder
}

// workIfWorker runs the worker and does not return if this process is one.
func workIfWorker() {
	text := os.Getenv(workerVariable)
	if text == "" {
		return
	}
	var p plan
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		err = work(p, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// work uses the lock until the parent ends it.
func work(p plan, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &worker{plan: p, out: json.NewEncoder(out)}
	w.clock = newClock(func(from, to int64) {
		w.say(message{Event: "stalled", Stall: &fault{processStalled, p.Process, from, to}})
	})
	go w.clock.run(ctx.Done())
	before := goleak.IgnoreCurrent()
	err := quiet()
	if err != nil {
		return err
	}
	if w.subject, err = openSubject(ctx, p); err != nil {
		return err
	}
	w.say(message{Event: "ready"})
	var busy sync.WaitGroup
	for g := range goroutines {
		busy.Go(func() { w.toil(ctx, g) })
	}
	if err := w.obey(in); err != nil {
		return err
	}
	busy.Wait()
	problem := ""
	if err := w.subject.close(); err != nil {
		problem = "close: " + err.Error() + "\n"
	}
	if err := leaks.Find(before); err != nil {
		problem += err.Error()
	}
	w.say(message{Event: "ended", Problem: problem})
	return nil
}

// obey follows the orders of the parent until the order to end, or until the parent is dead.
func (w *worker) obey(in io.Reader) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var order message
		if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
			return err
		}
		switch order.Event {
		case "rest":
			w.gate.Lock()
			w.clock.look() // reports a stall before the parent judges the operations
			w.say(message{Event: "resting"})
		case "work":
			w.gate.Unlock()
		case "end":
			w.ending.Store(true)
			w.gate.Unlock()
			return nil
		default:
			return fmt.Errorf("bug: order %q", order.Event)
		}
	}
	return fmt.Errorf("the parent is gone: %w", io.ErrUnexpectedEOF)
}

// toil does one operation after another.
func (w *worker) toil(ctx context.Context, goroutine int) {
	random := rand.New(rand.NewPCG(uint64(w.plan.Seed),
		uint64(newOperationID(w.plan.Process, w.plan.Start, int64(goroutine)))))
	for {
		w.gate.RLock()
		if w.ending.Load() {
			w.gate.RUnlock()
			return
		}
		o := w.choose(goroutine, random)
		o.Call = now()
		w.tell(o)
		w.subject.run(ctx, o, random, func() { w.tell(o) })
		o.Return = now()
		w.tell(o)
		w.gate.RUnlock()
		pause := upTo(random, 6*time.Millisecond)
		if o.Outcome != done && !o.Expected {
			pause += 20 * time.Millisecond // the server may be gone: failures must not fill the history
		}
		time.Sleep(pause)
	}
}

// choose plans an operation on one key or two, or on all. A third of all operations use key 0, and
// most of those that use a semaphore the first, so that some queues are long.
func (w *worker) choose(goroutine int, random *rand.Rand) *operation {
	o := &operation{
		ID:      newOperationID(w.plan.Process, w.plan.Start, w.sequence.Add(1)),
		Process: w.plan.Process, Goroutine: goroutine,
		Keys: []int{random.IntN(mutexes)},
	}
	if random.IntN(3) == 0 {
		o.Keys[0] = 0
	}
	verbs := w.subject.verbs()
	o.Verb = verbs[random.IntN(len(verbs))]
	second := random.IntN(mutexes)
	switch {
	case o.Verb == verbLead:
		o.Keys[0] = mutexes + random.IntN(elections)
	case o.Verb.permits():
		o.Keys[0] = semaphoreKey(random.IntN(4) / 3)
	case o.Verb == verbClaim:
		o.Keys[0] = claimKey(random.IntN(claims))
	case o.Verb == verbJob:
		o.Keys = nil
	case o.Verb.once():
		o.Keys, o.Work = nil, workOf(random)
	case (o.Verb == verbLock || o.Verb == verbShare) && random.IntN(60) == 0:
		o.Keys = o.Keys[:0]
		for key := range mutexes {
			o.Keys = append(o.Keys, key)
		}
	case random.IntN(10) == 0 && second != o.Keys[0]:
		o.Keys = append(o.Keys, second)
	}
	return o
}

// tell reports the present state of an operation. A report in the pipe outlives the worker.
func (w *worker) tell(o *operation) {
	copied := *o
	copied.Keys = slices.Clone(o.Keys)
	w.say(message{Event: "operation", Operation: &copied})
}

func (w *worker) say(m message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.out.Encode(m); err != nil { // the parent is gone
		os.Exit(1)
	}
}
