// Package interrupt ends a wait on the server with the caller's context, and keeps the connection.
package interrupt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/txlock/txlock/dialects"
)

const (
	// again is how often an interrupt is repeated: one in front of the statement is lost. So long a
	// server that knows the deadline has to end the wait by itself.
	again = 30 * time.Millisecond

	// Patience is how long a statement may ignore interrupts before its connection is closed, and
	// how long one interrupt may take.
	Patience = 2 * time.Second
	// GuestPatience is the same where a transaction has more to lose than the wait: an interrupt
	// may take seconds through a pooler on a busy machine.
	GuestPatience = 10 * time.Second

	// CleanUp bounds what is sent after a failure to put a connection right.
	CleanUp = 5 * time.Second
)

// ErrNoConnection is what an interrupt returns when it cannot reach the server.
var ErrNoConnection = errors.New("no connection to interrupt the statement from")

// Await runs statement, and calls interrupt to end it on the server when ctx ends first; where told
// says that the server knows ctx's deadline, only if the server is late. The context of statement
// does not end with ctx: client libraries would close the connection, and the waiter would stay in
// the server's queue. When interrupts do not help within patience, or cannot reach the server, cut
// closes the connection; where cut is nil, the context of statement ends instead. Behind Await no
// interrupt is under way, nor a cut: a late one would hit the connection's next statement.
func Await(ctx context.Context, told bool, patience time.Duration, interrupt func(context.Context) error,
	cut func(), statement func(context.Context) error,
) error {
	running := context.WithoutCancel(ctx)
	if cut == nil {
		running, cut = context.WithCancel(running)
		defer cut()
	}
	returned, watched := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(watched)
		byServer := told && errors.Is(ctx.Err(), context.DeadlineExceeded)
		if byServer && ClosedWithin(returned, again) {
			return
		}
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		for unreachable := false; limited.Err() == nil && !unreachable; {
			brief, cancel := context.WithTimeout(limited, Patience)
			unreachable = errors.Is(interrupt(brief), ErrNoConnection) && !byServer
			cancel()
			if ClosedWithin(returned, again) {
				return
			}
		}
		select {
		case <-returned: // just now
		default:
			cut()
		}
	})
	defer func() { // also when the client library panics
		close(returned)
		if !stop() {
			<-watched
		}
	}()
	return statement(running)
}

// PatienceWith is how long an interrupt waits for a connection of db. It is short while all that db
// may open are in use: the next one that comes back may be the waiter's own.
func PatienceWith(db *sql.DB) time.Duration {
	if s := db.Stats(); s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
		return 50 * time.Millisecond
	}
	return Patience
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

// Bound bounds statements that must be sent also after the end of ctx: cut closes the connection
// unless done is called in time, with the error of the statements. Behind a cut, done says so in
// the error, and has the connection destroyed. The context for the statements ends only where cut
// is nil: for one that can end go-sql-driver wakes a goroutine twice, a tenth of what a lock costs.
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

// Limit is the server's bound on a wait: what is left until ctx's deadline, in whole milliseconds,
// and 1 to 2 ms more, so that it never ends first. It is 0 without a deadline, and for a try.
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
