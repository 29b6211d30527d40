package txlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/lifecycle"
	"github.com/txlock/txlock/internal/queue"
)

// WithQueue lets at most n sessions of this Locker wait for or hold the same set of rows at the
// server. The other callers wait in the process, first come, first served, and take no connection.
// So a crowd that waits for one key leaves the pool to the others. Default: a quarter of the pool's
// connections, at least 2, and 2 for a pool without a limit. The size is read at the first call.
//
// Two are enough: one holds, and the other already queues at the server, which then hands over.
// With more, callers that are on their way to the server at the same moment may overtake each
// other. Between processes the order is that of sessions, not of callers: a process with many
// callers queues with n of them at a time.
//
// A caller that gives up leaves the queue of the process, and sends nothing. A Try misses when
// somebody waits in the process, or all n sessions are in use, and sends nothing either. Calls that
// join a session pass by, so what holds a session never waits in the process, and the server sees
// every deadlock. LockTx, and callers of [Mutex.Shared], pass by as well. n is at least 1.
func WithQueue(n int) Option {
	return optionFunc(func(c *config) {
		c.queue = n
		if n < 1 {
			c.reject(fmt.Errorf("WithQueue(%d): at least 1 session must be allowed", n))
		}
	})
}

// WithHandOff lets Unlock hand the session that holds a lock to the caller of this Locker that
// waits next for a Lock of the same rows, without a round trip: up to n times or for d, whichever
// comes first. Then the lock is released at the server, so that others have their turn. It is off
// by default. Both must be positive.
//
// With it, one session of the Locker at a time waits for or holds a set of rows, whatever WithQueue
// says. Another process waits for one such turn of each process before it, at most: d, and the hold
// in which d runs out.
//
// Each holder has a context and a token of its own. A loss ends the present holder, and the next
// locks anew. A session is handed over only if its connection was alive, as far as this system's
// kernel knew, within the last 100 µs. On systems other than Linux a loss may go unseen until the
// next heartbeat. A session in which further rows were asked for is not handed over.
//
// [Locker.Inspect] shows a session as that of the first of its holders: the key is what that one
// named, and since when is its time. [Locker.Break] ends the present holder.
//
// With [WithFencing], tokens increase over all locks that have a row in common, and are not to be
// compared between others. A session has four tokens for each caller that waits when it begins, and
// 1000 at most: a streak ends with them.
func WithHandOff(n int, d time.Duration) Option {
	return optionFunc(func(c *config) {
		c.handOff = handOff{times: n, atMost: d}
		if n < 1 || d <= 0 {
			c.reject(fmt.Errorf("WithHandOff(%d, %v): both must be positive", n, d))
		}
	})
}

// handOff is how often, and for how long, a session is handed over in a row.
type handOff struct {
	times  int
	atMost time.Duration
}

type (
	lines[Tx any] = queue.Lines[line, grant[Tx]]
	place[Tx any] = queue.Place[line, grant[Tx]]
)

// line names a set of rows. Two sets have different names: a session is handed over by them.
type line struct {
	table, column string
	values        string
	coded         bool // values is not the text of the only one
}

func lineOf(request dialects.Request) line {
	name := line{table: request.Table, column: request.Column}
	if len(request.Values) == 1 && !request.Values[0].Binary {
		name.values = request.Values[0].Text
		return name
	}
	var b strings.Builder
	for _, value := range request.Values {
		b.WriteByte(map[bool]byte{false: 't', true: 'b'}[value.Binary])
		b.WriteString(strconv.Itoa(len(value.Text)))
		b.WriteByte(':')
		b.WriteString(value.Text)
	}
	name.values, name.coded = b.String(), true
	return name
}

// each calls visit with the text of each value.
func (n line) each(visit func(text string)) {
	if !n.coded {
		visit(n.values)
		return
	}
	for rest := n.values; rest != ""; {
		head, text, _ := strings.Cut(rest, ":")
		length, err := strconv.Atoi(head[1:])
		if err != nil {
			panic("bug: the name of a line that lineOf has not made: " + err.Error())
		}
		visit(text[:length])
		rest = text[length:]
	}
}

// waitingHere is how many callers of this Locker wait for each row, without a session.
func (l *Locker[Tx]) waitingHere() map[row]int {
	count := map[row]int{}
	add := func(name line, waiting int) {
		name.each(func(text string) { count[row{name.table, name.column, text}] += waiting })
	}
	l.lines().Each(add)
	l.candidates.Each(add) // of semaphores, besides elections
	return count
}

// newLines is called once, at the first call that needs the size of the pool.
func (l *Locker[Tx]) newLines() *lines[Tx] {
	limit := l.config.queue
	if limit == 0 {
		limit = max(l.driver.PoolSize()/4, 2)
	}
	if l.config.handOff.times > 0 {
		limit = 1
	}
	return queue.New[line](limit, giveBack[Tx])
}

// giveBack gives back a session that was handed over to a caller that has panicked.
func giveBack[Tx any](g grant[Tx]) { _ = g.leave(context.Background(), g.handle) }

// lineUp waits in a line of the process. A panic of the Tracer leaves nobody in line, and nothing
// with nobody.
func (l *Locker[Tx]) lineUp(ctx, wait context.Context, in *lines[Tx], name line, how queue.Wait) (
	entered queue.Admission[line, grant[Tx]], err error,
) {
	queued, admitted := tracedQueue(ctx, l.config.tracer)
	how.Queued = queued
	entered, err = in.Enter(wait, name, how)
	told := false
	defer func() {
		if !told && err == nil {
			in.Drop(entered)
		}
	}()
	admitted()
	told = true
	if err != nil && !errors.Is(err, errClosed) {
		err = fmt.Errorf("%w: %w", ErrNotAcquired, err)
	}
	return entered, err
}

// enter waits in the process until the rows of request may be asked for, and asks for them, or has
// a session that was handed over.
func (m *Mutex[Tx]) enter(ctx, wait context.Context, request dialects.Request) (g grant[Tx], err error) {
	if request.Permit != nil {
		return m.enterForPermit(ctx, wait, request)
	}
	if request.Shared {
		return m.begin(ctx, wait, request, nil)
	}
	if request.Marker != nil {
		if g, entered, err := m.enterOnce(ctx, wait, request); entered || err != nil {
			return g, err
		}
	}
	name := lineOf(request)
	if request.Try {
		place, ok, err := m.locker.lines().Try(name)
		if err == nil && !ok {
			err = fmt.Errorf("%w: other callers of this process hold it or wait for it", ErrNotAcquired)
		}
		if err != nil {
			return g, err
		}
		return m.begin(ctx, wait, request, place)
	}
	for first := false; ; first = true { // again: it was first, and got nothing
		entered, err := m.locker.lineUp(ctx, wait, m.locker.lines(), name,
			queue.Wait{TakesSession: !request.Work, First: first})
		if err != nil {
			return g, err
		}
		if !entered.Handed {
			return m.begin(ctx, wait, request, entered.Place)
		}
		held := entered.Session
		held.heartbeat.Check() // it was handed over some time ago, if this process was stopped meanwhile
		gone, ended := held.handle.Err(), ctx.Err()
		if gone == nil && ended == nil {
			return held, nil
		}
		_ = held.leave(ctx, held.handle)
		if ended != nil {
			return g, fmt.Errorf("%w: left the queue of this process", ErrNotAcquired)
		}
	}
}

// maxTokens bounds the tokens that a session draws: the server counts them one by one.
const maxTokens = 1000

// tokensFor is how many tokens a session draws that will use the place: one for itself, and some
// for each caller that waits already. Its next owners get the following ones. No other session gets
// those for these rows: it would have to lock one of them, and draws its token after that. What
// sessions of other rows draw in between only lets the server count further.
func (l *Locker[Tx]) tokensFor(place *place[Tx]) int {
	const turnsEach = 4
	return 1 + min(l.config.handOff.times, turnsEach*place.Waiting(), maxTokens-1)
}

// streak is how long one session has been handed over in a row.
type streak struct {
	since  time.Time
	times  int
	tokens int  // drawn, and not given out yet
	over   bool // the session may hold other rows as well
}

// handOn hands the session to the caller of this process that waits next for the same rows, if
// handle is the last. It returns false when nobody does, or the streak is over: then nothing has
// changed.
//
// The mutexes are taken in the order of Lines, Life and session. Nothing that holds one of the
// latter calls Lines, and neither does what the end of a context runs, which has a goroutine of its
// own.
func (s *session[Tx]) handOn(handle *lifecycle.Handle) bool {
	if s.work || !s.inStreak() || s.place.Waiting() == 0 {
		return false
	}
	s.heartbeat.Check() // this process may have been stopped, and nobody has noticed the loss yet
	return s.place.HandOver(func() (grant[Tx], bool) {
		next := s.life.HandOn(handle, s.inStreak) // another caller may have locked other rows just now
		if next == nil {
			return grant[Tx]{}, false
		}
		return grant[Tx]{session: s, handle: next, Grant: s.nextGrant()}, true
	})
}

// inStreak tells whether the session may be handed over once more.
func (s *session[Tx]) inStreak() bool {
	limit := s.locker.config.handOff
	if limit.times == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.streak.over && s.streak.times < limit.times && time.Since(s.streak.since) < limit.atMost &&
		(s.first.Fence == "" || s.streak.tokens > 0)
}

// endStreak says that the session may hold rows of which its next owner would know nothing.
func (s *session[Tx]) endStreak() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streak.over = true
}

// nextGrant counts a hand-over, and is what the next owner gets.
func (s *session[Tx]) nextGrant() dialects.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streak.times++
	if s.first.Fence != "" {
		s.streak.tokens--
		s.granted.Token++
		s.held = nil // it names the former token
	}
	return s.granted
}
