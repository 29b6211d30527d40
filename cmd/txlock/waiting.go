package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/terminal"
)

// patience is how long one waits before one wonders for whom.
const patience = time.Second

// notice tells whom a wait is for, once it has taken a while.
type notice struct {
	cancel context.CancelFunc

	mu   sync.Mutex
	over bool          // the wait is: nothing more is said
	said chan struct{} // closed when all that was to be said is written; nil before anything was
}

// announce begins a notice, where there is somebody to read it. A server that is slow to say who
// holds the lock does not keep the rest back.
func (j *job) announce(ctx context.Context, locks locker) *notice {
	ctx, cancel := context.WithCancel(ctx)
	n := &notice{cancel: cancel}
	if j.try || !j.verbose && !terminal.Is(os.Stderr) {
		return n
	}
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(patience):
		}
		told := make(chan string, 1)
		go func() { told <- j.holders(ctx, locks, j.server.Timeout) }()
		select {
		case holders := <-told:
			n.say(j, holders)
			return
		case <-time.After(2 * patience):
		}
		n.say(j, "")
		if holders := <-told; holders != "" {
			n.say(j, holders)
		}
	}()
	return n
}

func (n *notice) say(j *job, holders string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		return
	}
	if holders != "" {
		holders = ": " + holders
	}
	before, said := n.said, make(chan struct{})
	n.said = said
	go func() {
		defer close(said)
		if before != nil {
			<-before
		}
		j.say("waiting for %s%s", j.name(), holders)
	}()
}

// end ends the notice and reports whether it was given. A standard error that takes nothing must
// not keep a granted lock from its work.
func (n *notice) end() bool {
	n.mu.Lock()
	n.over = true // before the question for the holders is cancelled, which would be an answer without any
	said := n.said
	n.mu.Unlock()
	n.cancel()
	return said != nil && closedSoon(said)
}

// sayBriefly is say, but does not wait for a standard error that takes nothing.
func (j *job) sayBriefly(format string, arguments ...any) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		j.say(format, arguments...)
	}()
	closedSoon(said)
}

func closedSoon(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(patience):
		return false
	}
}

// holders says who holds what this job waits for, on a second connection: nothing, when the server
// does not tell within limit.
func (j *job) holders(ctx context.Context, locks locker, limit time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	holdings, err := locks.Inspect(ctx, j.keys...)
	if err != nil {
		return ""
	}
	var told []string
	for _, h := range holdings {
		if text := j.holder(h); text != "" {
			told = append(told, text)
		}
	}
	return strings.Join(told, "; ")
}

// holder says who holds one row, unless it is this process, which may hold some of several. In
// containers many have its number: but what was held before this one asked is another's.
func (j *job) holder(h txlock.Holding) string {
	waited := time.Since(j.asked)
	ahead := ahead(h.Waiters, waited)
	text := ""
	if h.Holder != nil {
		if len(j.keys) > 1 && h.Holder.Process == os.Getpid() && h.Holder.For <= waited+time.Second {
			return ""
		}
		text = fmt.Sprintf("held%s by %s", period(*h.Holder), describe(*h.Holder))
		if key := terminal.Clean(h.Holder.Key); key != "" && len(j.keys) > 1 {
			text = key + " is " + text
		}
	}
	if ahead > 0 {
		text = strings.TrimPrefix(text+fmt.Sprintf(", %d waiting ahead", ahead), ", ")
	}
	return text
}

// ahead is how many stand before this process in a queue. Of several with its number it is the one
// that has waited about as long.
func ahead(waiters []txlock.Session, waited time.Duration) int {
	place, least := len(waiters), time.Duration(math.MaxInt64)
	for i, waiter := range waiters {
		if off := (waiter.For - waited).Abs(); waiter.Process == os.Getpid() && off < least {
			place, least = i, off
		}
	}
	return place
}

// describe is a session in words: session 4711 (shop, user app, process 99 on 10.0.0.7:5432).
func describe(s txlock.Session) string {
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
	if client := clientOf(s); client != "" {
		known = append(known, client)
	}
	text := "session " + s.ID
	if len(known) > 0 {
		text += " (" + strings.Join(known, ", ") + ")"
	}
	return terminal.Clean(text)
}

// clientOf is the process of a session.
func clientOf(s txlock.Session) string {
	switch {
	case s.Process > 0 && s.Host != "":
		return fmt.Sprintf("process %d on %s", s.Process, s.Host)
	case s.Process > 0:
		return fmt.Sprintf("process %d", s.Process)
	}
	return s.Host
}

// round leaves what people read of a duration.
func round(d time.Duration) time.Duration {
	switch {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond)
	default:
		return d.Round(time.Second)
	}
}
