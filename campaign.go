package txlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/txlock/txlock/dialects"
)

// officeTimeout bounds what a candidate does before it waits for the seat, and a new leader before
// its work begins. That one holds the seat meanwhile, and waits for another connection of a pool
// that may be full.
const officeTimeout = 5 * time.Second

// gracePeriod is how long a new leader waits before its work begins, for the last one to learn that
// its session was ended: PostgreSQL releases the locks of a session that is killed about a
// millisecond before it closes the connection, and a pooler in between passes that on later: 75 ms
// on a machine with ten times the processes that it can run.
const gracePeriod = 200 * time.Millisecond

// campaign is one candidacy, which a Tracer is told of. worked says that Lead returns, and with
// which error. Otherwise err is why another candidacy is needed.
func (e *Election[Tx]) campaign(ctx context.Context, work func(context.Context, int64) error) (worked bool, err error) {
	ctx, trace := e.mutex.startTrace(ctx, "Lead", false)
	err = traced(trace, work, func(work func(context.Context, int64) error) (err error) {
		worked, err = e.leadTerm(ctx, work)
		return err
	})
	e.mutex.locker.invalidate(err)
	return worked, err
}

// leadTerm waits for the seat, takes office, works and resigns. It returns what campaign does.
func (e *Election[Tx]) leadTerm(ctx context.Context, work func(context.Context, int64) error) (worked bool, err error) {
	// Without ownership: the seat is locked in a session of its own, and so is what a Do of the
	// work locks. A transaction of the seat's session would have to be committed by the resigning.
	ctx = Apart(ctx)
	m, taken := *e.mutex, e.seat // of this candidacy
	m.target = &taken
	g, err := m.acquireUntilClose(ctx, false)
	if err != nil {
		return false, err
	}
	leading := g.handle.Context(ctx)
	returned := false
	defer func() {
		if !returned { // work panicked, or called runtime.Goexit
			_ = g.leave(ctx, g.handle)
		}
	}()
	var failed error
	if err = e.takeOffice(leading, g, taken.rows); err == nil {
		worked = true
		failed = work(leading, g.Token)
		g.heartbeat.Check() // it may have failed for what has also ended the session, and nobody has noticed yet
	}
	returned = true
	lost := g.handle.Err()
	_ = g.leave(ctx, g.handle) // else the connection is closed, which the log tells; the leader has resigned as well
	switch ended := ctx.Err(); {
	case !worked:
		return false, joinErrors(err, lost)
	case failed == nil && ended != nil:
		return true, nil
	case ended != nil:
		return true, joinErrors(failed, e.mutex.wrap("Lead", ended))
	case lost != nil:
		return false, lost
	}
	return true, failed
}

// takeOffice begins a term. The record is written in another session, so that others see it. The
// office is locked only once that is done: so whoever finds it locked finds there who leads.
func (e *Election[Tx]) takeOffice(ctx context.Context, g grant[Tx], rows dialects.Rows) error {
	graceOver := time.After(gracePeriod)
	ctx, cancel := context.WithTimeout(ctx, officeTimeout)
	defer cancel()
	err := e.mutex.locker.driver.Appoint(ctx, rows, e.identity, g.Token)
	if err == nil {
		office := g // whose token is that of the seat
		err = office.lock(ctx, rows.Part(dialects.Office))
	}
	if err == nil {
		select {
		case <-graceOver:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err == nil {
		g.heartbeat.Check() // this process may have been stopped meanwhile
		err = g.handle.Err()
	}
	return err
}

// mayRetry tells whether another candidacy may succeed after the error of one: that of a session
// that was lost, of rows that have gone, or one that may pass by itself.
func (e *Election[Tx]) mayRetry(err error) bool {
	for _, temporary := range []error{ErrLost, ErrNoRow, ErrDeadlock, ErrNotAcquired} {
		if errors.Is(err, temporary) {
			return true
		}
	}
	return e.mutex.locker.driver.Passing(err)
}

// backoff is how long to wait between two candidacies that fail soon.
type backoff struct{ last time.Duration }

const minBackoff, maxBackoff = 100 * time.Millisecond, 5 * time.Second

// after is the wait after a candidacy. None is needed after one that came as far as waiting, and
// took longer than the last wait. It is spread, so that candidates that fail together do not come
// again together.
func (b *backoff) after(took time.Duration, err error) time.Duration {
	waited := errors.Is(err, ErrLost) || errors.Is(err, ErrNotAcquired)
	if waited && took > max(b.last, minBackoff) || took > maxBackoff {
		b.last = 0
		return 0
	}
	b.last = min(max(2*b.last, minBackoff), maxBackoff)
	return b.last/2 + rand.N(b.last/2)
}
