package txlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unique"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/lifecycle"
	"github.com/txlock/txlock/internal/queue"
)

type (
	lines[Tx any] = queue.Lines[lineName, grant[Tx]]
	place[Tx any] = queue.Place[lineName, grant[Tx]]
)

// lineName names a set of rows, and of locks beside them. Two sets have different names: a session
// is handed over by them.
type lineName struct {
	table, column string
	values        list
	beside        string
}

// list is a list of values that is quickly compared with another, however long they are.
type list struct {
	dialects.Value
	more unique.Handle[list] // the rest; zero: there is none
}

func lineOf(table, column string, values ...dialects.Value) lineName {
	var more unique.Handle[list]
	for _, value := range slices.Backward(values[1:]) {
		more = unique.Make(list{value, more})
	}
	return lineName{table: table, column: column, values: list{values[0], more}}
}

// waitingHere is how many callers of this Locker wait for each row, without a session.
func (l *Locker[Tx]) waitingHere() map[row]int {
	count := map[row]int{}
	add := func(name lineName, waiting int) {
		values, last := name.values, unique.Handle[list]{}
		for ; values.more != last; values = values.more.Value() {
			count[row{name.table, name.column, values.Text}] += waiting
		}
		count[row{name.table, name.column, values.Text}] += waiting
	}
	l.lines().Each(add)
	l.candidates.Each(add)
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
	return queue.New[lineName](limit, giveBack[Tx])
}

// giveBack gives back a session that was handed over to a caller that has panicked.
func giveBack[Tx any](g grant[Tx]) { _ = g.leave(context.Background(), g.handle) }

// awaitAdmission waits in a line of the process. A panic of the Tracer leaves nobody in line, and
// nothing with nobody.
func (l *Locker[Tx]) awaitAdmission(ctx, wait context.Context, in *lines[Tx], name lineName, how queue.Wait) (
	entered queue.Admission[lineName, grant[Tx]], err error,
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
	if err != nil && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("%w: %w", ErrNotAcquired, err)
	}
	return entered, err
}

// awaitCandidacy waits until the caller may go on at the server, as the only one of its line.
func (l *Locker[Tx]) awaitCandidacy(ctx, wait context.Context, name lineName) (*place[Tx], error) {
	entered, err := l.awaitAdmission(ctx, wait, l.candidates, name, queue.Wait{})
	return entered.Place, err
}

// queueAndBegin waits in the process until the rows of request may be asked for, and asks for them,
// or has a session that was handed over.
func (l *Locker[Tx]) queueAndBegin(ctx, wait context.Context, of fmt.Stringer, request dialects.Request) (g grant[Tx],
	err error,
) {
	if request.Shared {
		return l.begin(ctx, wait, of, request, nil)
	}
	name := lineOf(request.Table, request.Column, request.Values...)
	name.beside = besideLine(request.Beside)
	if request.Try {
		place, ok, err := l.lines().Try(name)
		if err == nil && !ok {
			err = fmt.Errorf("%w: other callers of this process hold it or wait for it", ErrNotAcquired)
		}
		if err != nil {
			return g, err
		}
		return l.begin(ctx, wait, of, request, place)
	}
	for first := false; ; first = true { // again: it was first, and got nothing
		entered, err := l.awaitAdmission(ctx, wait, l.lines(), name,
			queue.Wait{TakesSession: !request.Work, Blind: request.Exec != nil, First: first})
		if err != nil {
			return g, err
		}
		if !entered.Handed {
			return l.begin(ctx, wait, of, request, entered.Place)
		}
		handed := entered.Session
		sound := handed.heartbeat.Check() // it was handed over some time ago, if this process was stopped meanwhile
		gone, ended := handed.handle.Err(), ctx.Err()
		if sound && gone == nil && ended == nil {
			return handed, nil
		}
		_ = handed.leave(ctx, handed.handle)
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
	const tokensEach = 4
	return 1 + min(l.config.handOff.times, tokensEach*place.Waiting(), maxTokens-1)
}

// streak is how long one session has been handed over in a row.
type streak struct {
	since  time.Time
	times  int
	tokens int  // drawn, and not given out yet
	broken bool // the session may hold other rows as well
}

// handOn hands the session to the caller of this process that waits next for the same rows, if
// handle is the last. It returns false when nobody does, or the streak is over: then nothing has
// changed.
func (s *session[Tx]) handOn(handle *lifecycle.Handle) bool {
	if s.ctx != nil || !s.inStreak() || s.place.Waiting() == 0 {
		return false
	}
	if !s.heartbeat.Check() { // this process may have been stopped, or the server has said something
		return false
	}
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
	return !s.streak.broken && s.streak.times < limit.times && time.Since(s.streak.since) < limit.atMost &&
		(s.first.Fence == "" || s.streak.tokens > 0)
}

// isSince tells whether the session has had one owner since before that time.
func (s *session[Tx]) isSince(before time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streak.times == 0 && s.streak.since.Before(before)
}

// breakStreak says that the session may hold rows of which its next owner would know nothing.
func (s *session[Tx]) breakStreak() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streak.broken = true
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
