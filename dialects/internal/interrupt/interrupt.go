package dialects

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

const (
	// serverGrace is how long a server that was told of a deadline has to end the wait by itself.
	serverGrace = 20 * time.Millisecond
	// interruptEvery is how often an interrupt is repeated: one that arrives before the statement
	// has begun is lost.
	interruptEvery = 30 * time.Millisecond
	// interruptPatience is how long a statement may ignore interrupts before its connection is
	// closed.
	interruptPatience = 2 * time.Second
	// fullPoolPatience is how long an interrupt waits for somebody to give back a connection.
	fullPoolPatience = 50 * time.Millisecond
)

// ErrNoInterrupt is what an interrupt returns when it has no way to reach the server. The
// statement's connection is then closed at once; or, where the deadline is over and the server was
// told it, after two seconds in which it may end the wait by itself.
var ErrNoInterrupt = errors.New("no connection to interrupt the statement from")

// Await runs statement, and has interrupt end it on the server when ctx ends first.
//
// The context that statement gets does not end with ctx: client libraries answer that by closing
// the connection, which leaves the waiter in the server's queue. It ends when interrupts do not
// help for two seconds.
//
// When Await returns, no interrupt is under way any more: one that arrived late would hit the
// connection's next statement. told says that the server knows ctx's deadline itself, so that an
// interrupt is needed only if it is late. Await returns what statement returned: nil also when ctx
// ended but the statement succeeded all the same.
func Await(ctx context.Context, told bool, interrupt func(context.Context) error,
	statement func(context.Context) error,
) error {
	if ctx.Done() == nil {
		return statement(ctx)
	}
	running, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()

	ended := make(chan struct{})
	watched := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(watched)
		byServer := told && errors.Is(ctx.Err(), context.DeadlineExceeded)
		if byServer && closedWithin(ended, serverGrace) {
			return
		}
		patience, cancel := context.WithTimeout(running, interruptPatience)
		defer cancel()
		for patience.Err() == nil {
			if errors.Is(interrupt(patience), ErrNoInterrupt) && !byServer {
				break
			}
			if closedWithin(ended, interruptEvery) {
				return
			}
		}
		abandon()
	})
	err := statement(running)
	close(ended)
	if !stop() {
		<-watched
	}
	return err
}

// PatienceWith is how long an interrupt waits for a connection of db. While all that db may open
// are in use, the one it waits for may be the waiter's own; else it is only as far away as the
// server, and Await bounds that, as it does when the pool has become full just now.
func PatienceWith(db *sql.DB) time.Duration {
	if s := db.Stats(); s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
		return fullPoolPatience
	}
	return interruptPatience
}

func closedWithin(event <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-event:
		return true
	case <-timer.C:
		return false
	}
}

// ServerTimeout is what is left until ctx's deadline, rounded up so that the server is never ahead
// of the caller's clock, in whole milliseconds of at least 1, and false without a deadline.
func ServerTimeout(ctx context.Context) (time.Duration, bool) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0, false
	}
	left := max(time.Until(deadline), 0).Truncate(time.Millisecond) + 2*time.Millisecond
	return min(left, 24*24*time.Hour), true // the servers' own timers hold 2^31 ms, a little more than 24 days
}
