package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
	"github.com/txlock/txlock/internal/queue"
)

// Election chooses one leader at a time among all that campaign under the same name, in whichever
// process. docs/leaders.md says how.
type Election[Tx any] struct {
	locker               *Locker[Tx]
	name, hash, identity string
	seat                 *Mutex[Tx] // without the number of its row
}

func (e *Election[Tx]) made() *Mutex[Tx] { return made(e.seat, "Election: Locker.Election") }

// Leader is who leads an election.
type Leader struct {
	Identity string
	Term     int64     // increases strictly from leader to leader
	Since    time.Time // when the term began, by the database's clock
}

const (
	electionColumn     = string(dialects.KindElection) // stands where locks of rows have the name of a column
	minPause, maxPause = 100 * time.Millisecond, 5 * time.Second

	// officeTimeout bounds what a candidate does before it waits for the seat, and while it holds
	// that before its work begins: it waits for another connection of a pool that may be full.
	officeTimeout = 5 * time.Second

	// gracePeriod is how long a new leader waits for one that has not resigned to learn that its
	// session was ended: PostgreSQL releases the locks of a session that is killed about 1 ms
	// before it closes the connection, and a pooler passes that on 75 ms later on a busy machine.
	gracePeriod = 200 * time.Millisecond
)

// Election names an election, and who campaigns in it: a host, a pod, whatever tells people which
// process leads. A name is any text of at least one byte, an identity 1 to 255 bytes of UTF-8
// without NUL, which need not be unique. An election that is led or awaited takes a connection of
// the process, and another for a moment when a term begins: so the pool needs at least two.
func (l *Locker[Tx]) Election(name, identity string) *Election[Tx] {
	e := &Election[Tx]{locker: l, name: name, hash: label.Hash(name), identity: identity}
	e.seat = e.row()
	if e.seat.err = checkName("the identity", identity); name == "" {
		e.seat.err = errors.New("the name of the election is empty")
	}
	return e
}

// Lead campaigns, and runs work while it leads. term is larger than that of every leader before:
// send it with every write to another system, and have a smaller one refused. The context of work
// ends with ctx, with work, and with cause [ErrLost] when the session is lost, before anybody else
// can lead: then Lead waits for work, and campaigns again, as it does while the server is not to be
// had. It carries no ownership. Lead returns the error of work, or nil, or that of ctx unless work
// returned nil; the leader has resigned then, also after a panic.
func (e *Election[Tx]) Lead(ctx context.Context, work func(ctx context.Context, term int64) error) error {
	err := cmp.Or(e.made().err, e.locker.ready())
	switch {
	case err != nil:
	case work == nil:
		err = errors.New("nil work")
	case e.locker.info().PoolSize == 1:
		err = errors.New("the pool has one connection, and a leader needs two when its term begins")
	}
	for pause := minPause; err == nil && ctx.Err() == nil; pause = min(2*pause, maxPause) {
		begun, led := time.Now(), false
		calling, trace := e.made().startTrace(ctx, "Lead", false)
		failed := traced(trace, work, func(work func(context.Context, int64) error) (err error) {
			led, err = e.lead(calling, work)
			return err
		})
		switch {
		case led:
			return failed
		case e.locker.closing.Err() != nil:
			return e.made().wrap("Lead", ErrClosed)
		case ctx.Err() != nil:
			continue
		case !e.mayPass(failed):
			return e.made().wrap("Lead", failed)
		case time.Since(begun) > maxPause:
			pause = minPause
		}
		e.locker.config.logger.WarnContext(ctx, "txlock: no leader here for now, campaigns again", "election", e.name,
			"pause", pause, "error", failed)
		e.locker.pause(ctx, pause/2+rand.N(pause/2), nil) // spread: candidates that fail together come apart
	}
	return e.made().wrap("Lead", cmp.Or(err, ctx.Err()))
}

// mayPass tells whether another candidacy may succeed after the error of one.
func (e *Election[Tx]) mayPass(err error) bool {
	return errors.Is(err, ErrLost) || errors.Is(err, ErrNoRow) || errors.Is(err, ErrDeadlock) ||
		errors.Is(err, ErrNotAcquired) || e.locker.driver.Classify(err) != dialects.Final
}

// lead is one candidacy. led says that Lead returns, and with which error. Else err is why another
// candidacy is needed. Without ownership: the seat is locked in a session of its own, and so is
// what a Do of the work locks.
func (e *Election[Tx]) lead(ctx context.Context, work func(context.Context, int64) error) (led bool, err error) {
	ctx = Apart(ctx)
	place := e.locker.candidates.Enter(lineName{column: electionColumn, values: e.hash}, false)
	defer place.GoOn(queue.Left)
	if err = e.locker.awaitPlace(ctx, ctx, place); err != nil {
		return false, err
	}
	seat, office, err := e.rows(ctx)
	if err != nil {
		return false, err
	}
	lock, err := seat.hold(ctx, false)
	if err != nil {
		return false, err
	}
	held := lock.Context()
	leading, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(held, func() {
		cancel(context.Cause(held))
		place.GoOn(queue.Left) // who comes behind need not wait for the end of the work
	})
	var inOffice *Lock
	defer func() { // also when work panics, or calls runtime.Goexit
		overtaken := held.Err() != nil
		cancel(nil)
		if inOffice != nil {
			// The record says that the work has ended, so that the next need not wait for it.
			brief, stop := context.WithTimeout(held, gracePeriod)
			_, _ = e.locker.askKind(brief, func(k dialects.Kinds) dialects.Query {
				return k.Leaders.Resign.With(e.hash, lock.Token())
			})
			stop()
			_ = inOffice.Unlock(ctx)
		}
		lost := lock.Unlock(ctx) // the log tells of a connection that had to be closed
		switch ended := ctx.Err(); {
		case inOffice == nil:
			err = joinErrors(err, lost)
		case ended != nil && err != nil:
			err = joinErrors(err, e.made().wrap("Lead", ended))
		case ended == nil && overtaken:
			led, err = false, lost
		}
	}()
	if inOffice, err = e.takeOffice(ctx, held, office, lock.Token()); err != nil {
		return false, err
	}
	return true, work(leading, lock.Token())
}

// row is one of the election's, or what errors, the log and a Tracer are told of it.
func (e *Election[Tx]) row(numbers ...string) *Mutex[Tx] {
	call := Call{Column: electionColumn, Names: []string{e.name}}
	row := e.locker.ranks(fmt.Sprintf("the election %.64q", e.name), call, numbers...)
	return &Mutex[Tx]{locker: e.locker, target: row, untilClose: true}
}

// rows finds the seat and the office, or makes them. Nobody remembers them: their table may be made
// anew.
func (e *Election[Tx]) rows(ctx context.Context) (seat, office *Mutex[Tx], err error) {
	ctx, cancel := context.WithTimeout(ctx, officeTimeout)
	defer cancel()
	lines, err := e.locker.askKind(ctx, func(k dialects.Kinds) dialects.Query {
		return k.Leaders.Rows.With(e.hash, e.locker.config.storedName(e.name))
	})
	numbers := strings.Fields(strings.Join(lines, " "))
	if err == nil && len(numbers) != 2 {
		err = fmt.Errorf("%w: those of the election went as they came", ErrNoRow)
	}
	if err != nil {
		return nil, nil, err
	}
	return e.row(numbers[0]), e.row(numbers[1]), nil
}

// takeOffice begins a term: it writes the record on another connection, if that has a smaller term,
// and then locks the office in the session of the seat, whose context is held. While the office is
// locked, the record says who leads. Nobody writes to the office: a record is locked also while it
// is written, and still says who led before.
//
// A candidate that was stopped since it got the seat may have been overtaken: then a later one has
// written the record, or will find the office free.
func (e *Election[Tx]) takeOffice(ctx, held context.Context, office *Mutex[Tx], term int64) (*Lock, error) {
	granted := time.Now()
	held, cancel := context.WithTimeout(held, officeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	former, err := e.locker.askKind(held, func(k dialects.Kinds) dialects.Query {
		return k.Leaders.Write.With(term, e.identity, e.hash)
	})
	switch {
	case err != nil:
		return nil, err
	case len(former) == 0:
		return nil, fmt.Errorf("%w: the record of the election has a later term than %d, or is gone", ErrLost, term)
	case former[0] != "resigned":
		e.locker.pause(held, gracePeriod-time.Since(granted), nil)
	}
	return office.hold(held, false) // behind the grace: it proves the session
}

// Leader tells who leads now, or [ErrNoLeader]: nobody does from the death of a leader until its
// successor's term is written. It asks the server each time, in one round trip, and not one that
// only reads. The answer may be old when it arrives: it is for finding the leader, not for
// excluding anybody.
func (e *Election[Tx]) Leader(ctx context.Context) (l Leader, err error) {
	var lines []string
	if err = e.made().err; err == nil {
		lines, err = e.locker.askKind(ctx, func(k dialects.Kinds) dialects.Query {
			return k.Leaders.Leader.With(e.hash)
		})
	}
	record, free := strings.CutPrefix(strings.Join(lines, " "), "free ")
	var serves string
	var since int64
	n, _ := fmt.Sscanf(record, "%s %d %d %x", &serves, &l.Term, &since, &l.Identity)
	l.Since = time.UnixMicro(since)
	switch {
	case err != nil:
	case free && serves == "reads":
		err = errors.New("this server only reads, and does not know who leads: ask the primary")
	case free || n < 4: // or nobody has led yet, or the last one has resigned
		err = ErrNoLeader
	default:
		return l, nil
	}
	return Leader{}, e.made().wrap("Leader", err)
}
