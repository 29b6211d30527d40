package serve

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/txlock/txlock"
)

// state is what is known of the server after a look.
type state struct {
	holdings []txlock.Holding // of the last look that succeeded
	at       time.Time        // when that was; zero if none has
	err      error            // of the last look
	silent   bool             // the server has not answered the next look yet, for longer than usual
}

// when says of which time the picture is; it is empty if there is none.
func (s state) when() string {
	if s.at.IsZero() {
		return ""
	}
	return clock(s.at)
}

// trouble says since when the picture is old, and why. It has no running clock: a screen reader
// says it each time it changes.
func (s state) trouble() string {
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

// watch asks the server on behalf of all viewers, by one call at a time, and only when somebody
// looks.
type watch struct {
	locks Locks
	every time.Duration // between the beginnings of two looks, at least
	limit time.Duration // for a look

	mu      sync.Mutex
	state   state
	due     time.Time     // no look begins before
	looking chan struct{} // closed when the look that is under way ends; nil if there is none
}

// patience is how long a viewer waits for a new state before it is told of the old one.
const patience = 3 * time.Second

// newest returns the state of the last look, or of a new one if that is due. If the server takes
// long it returns the old state, which says so. The error is that of ctx.
func (w *watch) newest(ctx context.Context) (state, error) {
	w.mu.Lock()
	if w.looking == nil && !time.Now().Before(w.due) {
		w.looking = make(chan struct{})
		go w.look()
	}
	looking := w.looking
	w.mu.Unlock()
	silent := false
	if looking != nil {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-looking:
		case <-timer.C:
			silent = true
		case <-ctx.Done():
			return state{}, ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.state
	s.silent = silent && w.looking == looking // it may have ended just now
	return s, nil
}

// look asks the server. It does not end with who wants to see the answer: to cancel it would leave
// an error in the server's log, and cost a connection.
func (w *watch) look() {
	ctx, cancel := context.WithTimeout(context.Background(), w.limit)
	defer cancel()
	begun := time.Now()
	holdings, err := w.locks.Inspect(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("no answer within %v: %w", w.limit, err)
	}
	ended := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	// As long as a look took, the server has rest from the next.
	w.due = begun.Add(max(w.every, 2*ended.Sub(begun)))
	if w.state.err = err; err == nil {
		w.state.holdings, w.state.at = holdings, ended
	}
	close(w.looking)
	w.looking = nil
}
