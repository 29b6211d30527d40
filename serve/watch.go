package serve

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/txlock/txlock"
)

// state is what is known of the server after a look. It does not change.
type state struct {
	number   int
	holdings []txlock.Holding // of the last look that succeeded
	at       time.Time        // when that was; zero if none has
	err      error            // of the last look
	silent   bool             // the server has not answered the next look yet, for longer than usual
	leaders  map[string]*txlock.Leader
}

// when says of which time the picture is; it is empty if there is none.
func (s *state) when() string {
	if s.at.IsZero() {
		return ""
	}
	return clock(s.at)
}

// trouble says since when the picture is old, and why. It has no running clock: a screen reader
// says it each time it changes.
func (s *state) trouble() string {
	since := "The server has not answered yet."
	if !s.at.IsZero() {
		since = "This picture is old: the server has not answered since " + clock(s.at) + "."
	}
	switch {
	case s.err != nil:
		said := strings.TrimPrefix(s.err.Error(), "txlock: inspect: ")
		return since + " Trying again. It said: " + clean(cut(said, 300))
	case s.silent:
		return since + " Still waiting for it."
	}
	return ""
}

// watch asks the server on behalf of all viewers, by one call at a time, while there are any. A
// viewer takes the newest state whenever it is ready for one, so a slow one holds up nobody and
// needs no buffer.
type watch struct {
	locks Locks
	every time.Duration // between the beginnings of two looks, at least
	limit time.Duration // for a look
	// elections are asked for their leaders behind the locks, in the same look.
	elections map[string]func(context.Context) (txlock.Leader, error)

	mu      sync.Mutex
	viewers int
	left    chan struct{} // closed when the last viewer leaves
	running bool          // the goroutine of run
	due     time.Time     // no look begins before
	state   *state
	changed chan struct{} // closed when state is replaced
}

func newWatch(locks Locks, every, limit time.Duration,
	elections map[string]func(context.Context) (txlock.Leader, error),
) *watch {
	return &watch{
		locks: locks, every: every, limit: limit, elections: elections, state: new(state),
		changed: make(chan struct{}),
	}
}

// join begins to ask the server, unless another viewer has. Its caller calls leave.
func (w *watch) join() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.viewers++; w.viewers == 1 {
		w.left = make(chan struct{})
	}
	if !w.running {
		w.running = true
		go w.run()
	}
}

func (w *watch) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.viewers--; w.viewers == 0 {
		close(w.left)
	}
}

// run looks until nobody does. A look that has begun ends by itself: to cancel it would leave an
// error in the server's log, and cost a connection.
func (w *watch) run() {
	for {
		w.mu.Lock()
		if w.viewers == 0 {
			w.running = false
			w.mu.Unlock()
			return
		}
		pause, left := time.Until(w.due), w.left
		w.mu.Unlock()
		if pause <= 0 {
			w.look()
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-left:
		}
		timer.Stop()
	}
}

func (w *watch) look() {
	ctx, cancel := context.WithTimeout(context.Background(), w.limit)
	defer cancel()
	begun := time.Now()
	holdings, err := w.locks.Inspect(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("no answer within %v: %w", w.limit, err)
	}
	var leaders map[string]*txlock.Leader
	if err == nil {
		leaders = AskLeaders(ctx, w.elections)
	}
	ended := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	// As long as a look took, the server has rest from the next.
	w.due = begun.Add(max(w.every, 2*ended.Sub(begun)))
	next := &state{
		number: w.state.number + 1, holdings: holdings, at: ended, err: err, leaders: leaders,
	}
	if err != nil {
		next.holdings, next.at = w.state.holdings, w.state.at
	}
	w.state = next
	close(w.changed)
	w.changed = make(chan struct{})
}

// patience is how long viewers wait for a new state before they are told of the old one.
const patience = 3 * time.Second

// newest returns a state that is as new as may be: without a question if the last one was just
// asked.
func (w *watch) newest(ctx context.Context) (*state, error) {
	w.join()
	defer w.leave()
	return w.after(ctx, w.outdated())
}

// outdated is the number of a state from a time when nobody looked, or 0 if there is a new one.
func (w *watch) outdated() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Now().Before(w.due) {
		return 0
	}
	return w.state.number
}

// after returns the first state after the one with this number. If that takes long it returns the
// old one, which says so. The error is that of ctx. Its caller has joined.
func (w *watch) after(ctx context.Context, number int) (*state, error) {
	timer := time.NewTimer(w.every + patience)
	defer timer.Stop()
	for {
		w.mu.Lock()
		s, changed := w.state, w.changed
		w.mu.Unlock()
		if s.number > number {
			return s, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			old := *s
			old.silent = true
			return &old, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
