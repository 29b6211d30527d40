// Package interrupt ends a wait on the server when the caller's context ends, and keeps the
// connection.
package interrupt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/txlock/txlock/dialects"
)

const (
	// serverGrace is how long a server that knows the deadline has to end the wait by itself.
	serverGrace = 20 * time.Millisecond
	// again is how often an interrupt is repeated: one that arrives before the statement has begun
	// is lost.
	again = 30 * time.Millisecond
	// patience is how long an interrupt may take.
	patience = 2 * time.Second
	// fullPoolPatience is how long an interrupt waits for a connection to come back to the pool.
	fullPoolPatience = 50 * time.Millisecond

	// Patience is how long a statement may ignore interrupts before its connection is closed.
	Patience = patience
	// GuestPatience is the same where a transaction would be lost that has more than the wait. An
	// interrupt may take seconds to arrive, through a pooler on a busy machine. A session that is
	// dead in fact is noticed besides: by the kernels, or by who began it.
	GuestPatience = 10 * time.Second

	// CleanUp bounds what is sent after a failure to put a connection right.
	CleanUp = 5 * time.Second
)

// ErrNoConnection is what an interrupt returns when it cannot reach the server. The statement's
// connection is then closed at once. If the deadline is over and the server knows it, the server
// first has two seconds to end the wait by itself.
var ErrNoConnection = errors.New("no connection to interrupt the statement from")

// Await runs statement, and calls interrupt to end it on the server when ctx ends first. Told says
// that the server knows ctx's deadline, so that an interrupt is needed only if the server is late.
//
// The context that statement gets does not end with ctx. Client libraries would close the
// connection, and the waiter would stay in the server's queue. When interrupts do not help within
// patience, cut is called, which closes the connection. With cut that context never ends, so that
// no library has to watch it. Where cut is nil, the context ends instead.
//
// Await returns the error of statement, which is nil also when it succeeded after the end of ctx.
// No interrupt is under way then, nor a cut: a late one would hit the connection's next statement.
func Await(ctx context.Context, told bool, patience time.Duration, interrupt func(context.Context) error,
	cut func(), statement func(context.Context) error,
) error {
	if ctx.Done() == nil {
		return statement(ctx)
	}
	w := waited{abandon: cut}
	running := context.WithoutCancel(ctx)
	if cut == nil {
		var cancel context.CancelFunc
		running, cancel = context.WithCancel(running)
		defer cancel()
		w.abandon = cancel
	}
	w.watch.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer w.watch.Done()
		ended := w.whenOver()
		byServer := told && errors.Is(ctx.Err(), context.DeadlineExceeded)
		if byServer && ClosedWithin(ended, serverGrace) {
			return
		}
		if !Repeat(context.WithoutCancel(ctx), patience, interrupt, ended, byServer) {
			w.giveUp()
		}
	})
	defer func() { // also when the client library panics
		w.end()
		if !stop() {
			w.watch.Wait()
		}
	}()
	return statement(running)
}

// waited is a statement that runs.
type waited struct {
	watch   sync.WaitGroup // over when nobody interrupts the statement any more
	abandon func()

	mu    sync.Mutex
	over  bool
	ended chan struct{} // closed when over; nil: nobody has asked for it
}

// whenOver is closed when the statement is over.
func (w *waited) whenOver() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = make(chan struct{})
	if w.over {
		close(w.ended)
	}
	return w.ended
}

func (w *waited) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.ended != nil {
		close(w.ended)
	}
}

// giveUp abandons a statement that is not over: its connection may be another's afterwards.
func (w *waited) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.abandon()
	}
}

// Repeat calls interrupt until ended is closed, which it tells, or as long as within says. Where
// interrupt cannot reach the server, it goes on only when told to try all the same.
func Repeat(ctx context.Context, within time.Duration, interrupt func(context.Context) error, ended <-chan struct{},
	allTheSame bool,
) (done bool) {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for limited.Err() == nil {
		brief, cancel := context.WithTimeout(limited, patience)
		err := interrupt(brief)
		cancel()
		if errors.Is(err, ErrNoConnection) && !allTheSame {
			return false
		}
		if ClosedWithin(ended, again) {
			return true
		}
	}
	return false
}

// PatienceWith is how long an interrupt waits for a connection of db. It is short while all that db
// may open are in use: the next one that comes back may be the waiter's own. Otherwise a connection
// is only as far away as the server.
func PatienceWith(db *sql.DB) time.Duration {
	if s := db.Stats(); s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
		return fullPoolPatience
	}
	return patience
}

// ClosedWithin waits for an event, or until the time is over, and tells which it was.
func ClosedWithin(event <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-event:
		return true
	case <-timer.C:
		return false
	}
}

// Bound bounds statements that must be sent also after the end of ctx: cut, which closes the
// connection, is called at that time, unless done is called before. Done gets the error of the
// statements. Where cut was called it adds that to the error, and has the connection destroyed,
// which must not be another's. The context for the statements never ends: go-sql-driver wakes a
// goroutine twice for each statement whose context can end, and that is a tenth of what a lock
// costs. Where cut is nil it ends at that time.
func Bound(ctx context.Context, by time.Time, cut, destroy func()) (statements context.Context, done func(*error)) {
	ctx = context.WithoutCancel(ctx)
	if cut == nil {
		ctx, cancel := context.WithDeadline(ctx, by)
		return ctx, func(*error) { cancel() }
	}
	late := time.AfterFunc(time.Until(by), cut)
	return ctx, func(err *error) {
		if late.Stop() {
			return
		}
		destroy()
		if *err != nil {
			*err = fmt.Errorf("no answer came in time, so the connection was closed: %w: %w",
				context.DeadlineExceeded, *err)
		}
	}
}

// Detached is a context for what must be sent also after the end of ctx.
func Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), CleanUp)
}

// Limit is the bound that the server puts on the wait of a request: what is left until ctx's
// deadline, in whole milliseconds, and 1 to 2 ms more, so that the server never ends a wait before
// ctx does. It is 0 without a deadline, and for a try, which does not wait.
func Limit(ctx context.Context, request dialects.Request) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok || request.Try {
		return 0
	}
	left := max(time.Until(deadline), 0).Truncate(time.Millisecond) + 2*time.Millisecond
	return min(left, Longest)
}

// Longest is the longest limit that servers take: their timers hold 2^31 ms.
const Longest = 24 * 24 * time.Hour
