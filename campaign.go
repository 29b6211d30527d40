package txlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/queue"
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
	ctx, trace := e.locker.startTrace(ctx, "Lead", seat{e.name}, Call{}, false)
	err = traced(trace, work, func(work func(context.Context, int64) error) (err error) {
		worked, err = e.leadTerm(ctx, work)
		return err
	})
	e.locker.invalidate(err)
	return worked, err
}

// leadTerm waits for the seat, takes office, works and resigns. It returns what campaign does.
func (e *Election[Tx]) leadTerm(ctx context.Context, work func(context.Context, int64) error) (worked bool, err error) {
	g, rows, err := e.acquireSeat(ctx)
	if err != nil {
		return false, err
	}
	// Without ownership, so that a Do of the work is one of its own: a transaction of the seat's
	// session would have to be committed by the resigning.
	leading := g.handle.Context(Apart(ctx))
	returned := false
	defer func() {
		if !returned { // work panicked, or called runtime.Goexit
			_ = g.leave(ctx, g.handle)
		}
	}()
	var failed error
	if err = e.takeOffice(leading, g, rows); err == nil {
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
		return true, joinErrors(failed, e.wrap("Lead", ended))
	case lost != nil:
		return false, lost
	}
	return true, failed
}

// acquireSeat waits for the seat: first in the process, where one candidate of each election at a
// time goes on, and then at the server.
func (e *Election[Tx]) acquireSeat(ctx context.Context) (g grant[Tx], rows dialects.Rows, err error) {
	l := e.locker
	entered, err := l.awaitAdmission(ctx, ctx, l.candidates,
		lineOf(l.config.table, electionColumn, dialects.Value{Text: e.key}), queue.Wait{})
	if err != nil {
		return g, rows, err
	}
	found := false
	defer func() {
		if !found { // also when the client library panicked
			entered.Place.Leave()
		}
	}()
	wait, done := l.untilClose(ctx)
	defer done()
	table, rows, err := e.rows(wait)
	if err != nil {
		return g, rows, err
	}
	found = true // and begin leaves the place
	request := rows.Part(dialects.Seat)
	// The term comes with the seat: a candidate that is stopped in between must not draw a later
	// one than its successor has.
	request.Lease, request.Fence, request.Beside = l.config.lease, table, e.beside
	g, err = l.begin(ctx, wait, seat{e.name}, request, entered.Place)
	return g, rows, err
}

// rows finds the rows of the election, or makes them, and the lock table. It does not remember the
// rows: their table may have been made anew, and the seat be another's.
func (e *Election[Tx]) rows(ctx context.Context) (table string, rows dialects.Rows, err error) {
	ctx, cancel := context.WithTimeout(ctx, officeTimeout)
	defer cancel()
	found, err := e.locker.find(ctx, false)
	if err != nil {
		return "", rows, err
	}
	rows, err = e.locker.driver.Rows(ctx, found.Name, e.locker.config.named(dialects.KindElection, e.name),
		dialects.Parts, true)
	return found.Name, rows, err
}

// takeOffice begins a term. The record is written in another session, so that others see it. The
// office is locked only once that is done: so whoever finds it locked finds there who leads.
func (e *Election[Tx]) takeOffice(ctx context.Context, g grant[Tx], rows dialects.Rows) error {
	graceOver := time.After(gracePeriod)
	ctx, cancel := context.WithTimeout(ctx, officeTimeout)
	defer cancel()
	err := e.locker.driver.Appoint(ctx, rows, e.identity, g.Token)
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

// seat is the seat of an election, as people are told.
type seat struct{ election string }

func (s seat) String() string { return "the election " + strconv.Quote(truncate(s.election)) }
func (s seat) call() Call     { return Call{Column: electionColumn, Names: []string{s.election}} }

// electionColumn stands where locks of rows have the name of a column.
const electionColumn = "election"

// mayRetry tells whether another candidacy may succeed after the error of one: that of a session
// that was lost, of rows that have gone, or one that may pass by itself.
func (e *Election[Tx]) mayRetry(err error) bool {
	for _, temporary := range []error{ErrLost, ErrNoRow, ErrDeadlock, ErrNotAcquired} {
		if errors.Is(err, temporary) {
			return true
		}
	}
	return e.locker.driver.Passing(err)
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
