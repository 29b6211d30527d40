package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/terminal"
	"github.com/txlock/txlock/internal/holdings"
)

// isLock tells whether a row is that of a lock, and not of a semaphore, an election or a claim.
func isLock(h txlock.Holding) bool {
	return !holdings.IsSemaphore(h) && !holdings.IsElection(h) && !holdings.IsClaim(h)
}

// patience is how long a wait lasts before it is announced.
const patience = time.Second

// notice says who holds the lock when a wait takes longer.
type notice struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it says nothing more

	mu          sync.Mutex
	over, begun bool // the wait is over; something was said, or is being said
}

// announce begins a notice if a person may read it. When the server is slow to name the holder, the
// first notice comes without the holder.
func (j *job) announce(ctx context.Context, locks locker) *notice {
	ctx, cancel := context.WithCancel(ctx)
	n := &notice{cancel: cancel, done: make(chan struct{})}
	if j.try || !j.verbose && !terminal.Is(os.Stderr) {
		return n
	}
	go func() {
		defer close(n.done)
		select {
		case <-ctx.Done():
			return
		case <-time.After(patience):
		}
		told := make(chan string, 1)
		go func() { told <- j.holders(j.look(ctx, locks, j.server.Timeout)) }()
		select {
		case holders := <-told:
			n.say(j, holders)
			return
		case <-time.After(2 * patience):
		}
		n.say(j, "")
		select {
		case holders := <-told:
			if holders != "" {
				n.say(j, holders)
			}
		case <-ctx.Done():
		}
	}()
	return n
}

func (n *notice) say(j *job, holders string) {
	n.mu.Lock()
	over := n.over
	n.begun = n.begun || !over
	n.mu.Unlock()
	if holders != "" {
		holders = ": " + holders
	}
	if !over {
		j.say("waiting for %s%s", j.name(), holders)
	}
}

// end ends the notice and reports whether it was written. It does not wait for a blocked standard
// error: the lock is granted, and its work should begin.
func (n *notice) end() bool {
	n.mu.Lock()
	n.over = true // before cancel: otherwise a cancelled question would be announced without holders
	begun := n.begun
	n.mu.Unlock()
	n.cancel()
	return begun && closedSoon(n.done)
}

// briefly does something, but does not wait for it longer than patience.
func briefly(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	closedSoon(done)
}

func closedSoon(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(patience):
		return false
	}
}

// look asks on a second connection who holds the locks that this job waits for. There are none
// if the server does not answer within limit.
func (j *job) look(ctx context.Context, locks locker, limit time.Duration) []txlock.Holding {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found, err := locks.Inspect(ctx, j.keys...)
	if err != nil {
		return nil
	}
	return found
}

// isOther tells whether a slot is held by a session that shows what it holds, and none of it is a
// key of this job. A hidden key counts. On MariaDB an idle session shows nothing at all, and nobody
// knows.
func (j *job) isOther(all []txlock.Holding) func(txlock.Holding) bool {
	// Those that a try of the row misses for.
	inFront := func(h txlock.Holding) []txlock.Session {
		if holders := holdings.Holders(h); len(holders) > 0 {
			return holders
		}
		return h.Waiters
	}
	ours := map[string]bool{}
	for _, h := range all {
		for _, s := range inFront(h) {
			ours[s.ID] = ours[s.ID] || j.shows(s.Key)
		}
	}
	return func(h txlock.Holding) bool {
		return h.Column == "" && j.holder(h) != "" && slices.ContainsFunc(inFront(h),
			func(s txlock.Session) bool { return s.Process != 0 && !ours[s.ID] })
	}
}

// shows tells whether a session shows a key of this job.
func (j *job) shows(shown string) bool {
	return shown == "…" || slices.ContainsFunc(j.keys, func(key string) bool { return holdings.Shows(shown, key) })
}

// holders says who holds the locks that this job waits for, as far as that is known.
func (j *job) holders(all []txlock.Holding) string {
	var told []string
	for _, h := range all {
		if text := j.holder(h); text != "" {
			told = append(told, text)
		}
	}
	return strings.Join(told, "; ")
}

// holder says who holds one row. It leaves out this process, which may already hold some of several
// rows. In containers many processes have the same number. A row that was held before this process
// asked belongs to another.
func (j *job) holder(h txlock.Holding) string {
	if holdings.IsElection(h) || holdings.IsSemaphore(h) != (j.permits > 0) || holdings.IsClaim(h) != j.claim {
		return "" // something else of the same name
	}
	waited := time.Since(j.asked)
	ahead := ahead(h.Waiters, waited)
	text := ""
	if h.Holder != nil {
		if len(j.keys) > 1 && h.Holder.Process == os.Getpid() && h.Holder.For <= waited+time.Second {
			return ""
		}
		text = fmt.Sprintf("held%s by %s", period(*h.Holder), describe(*h.Holder))
		switch key := terminal.Clean(h.Holder.Key); {
		case key == "" && h.Holder.Process != 0:
			text += ", which does not show its key"
		case key == "":
		case !j.shows(h.Holder.Key):
			text = key + ", another key of the same slot, is " + text
		case len(j.keys) > 1:
			text = key + " is " + text
		}
	}
	if len(h.Readers) > 0 {
		text = fmt.Sprintf("shared by %d sessions, %s among them", len(h.Readers), describe(h.Readers[0]))
	}
	if len(h.Permits) > 0 {
		longest := slices.MaxFunc(h.Permits, func(a, b txlock.Session) int { return cmp.Compare(a.For, b.For) })
		text = fmt.Sprintf("permits held: %d, the longest%s by %s", len(h.Permits), period(longest), describe(longest))
	}
	if ahead > 0 {
		text = strings.TrimPrefix(text+fmt.Sprintf(", %d waiting ahead", ahead), ", ")
	}
	return text
}

// ahead returns how many waiters stand before this process in a queue. If several waiters have its
// process number, it takes the one whose wait is closest to ours.
func ahead(waiters []txlock.Session, waited time.Duration) int {
	place, least := len(waiters), time.Duration(math.MaxInt64)
	for i, waiter := range waiters {
		if off := (waiter.For - waited).Abs(); waiter.Process == os.Getpid() && off < least {
			place, least = i, off
		}
	}
	return place
}

// describe returns a session in words: session 4711 (shop, user app, process 99 on 10.0.0.7:5432).
func describe(s txlock.Session) string {
	if s.By != "" {
		return terminal.Clean(s.By + ", until " + clock(s.Until.Local(), time.Now()))
	}
	if s.Prepared != "" {
		return terminal.Clean("the prepared transaction " + s.Prepared)
	}
	if s.ID == "" {
		return "a session that the server did not name"
	}
	var known []string
	if s.Application != "" {
		known = append(known, s.Application)
	}
	if s.User != "" {
		known = append(known, "user "+s.User)
	}
	if client := holdings.Client(s); client != "" {
		known = append(known, client)
	}
	text := "session " + s.ID
	if len(known) > 0 {
		text += " (" + strings.Join(known, ", ") + ")"
	}
	return terminal.Clean(text)
}

// round drops digits that people do not need.
func round(d time.Duration) time.Duration {
	switch {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond)
	default:
		return d.Round(time.Second)
	}
}
