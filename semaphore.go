package txlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
	"github.com/txlock/txlock/internal/locktable"
	"github.com/txlock/txlock/internal/queue"
)

const (
	semaphoreColumn = string(dialects.KindSemaphore) // stands where locks of rows have the name of a column
	lookEvery       = 20 * time.Millisecond          // how often the first that waits looks for a permit
	answerLimit     = 600 * time.Millisecond         // how long the answer to what waits for nobody may take at first
)

// Semaphore names a lock that n sessions, 1 to 1000, may hold at once, each with one of the permits
// 0 to n-1, which [Lock.Permit] tells. Each permit ever named has a row, so take few keys. A wait
// takes two connections, and no database sees a deadlock of such waits: bound them by
// [Mutex.Within]. LockTx, Exec and Shared are errors, and so is a call in a Do or a Lock: take the
// permit before, or with [Apart]. docs/semaphores.md has the order of waiters, and clients that
// disagree on n.
func (l *Locker[Tx]) Semaphore(key string, n int) *Mutex[Tx] {
	hash := label.Hash(key)
	p := &permit[Tx]{locker: l, key: key, hash: hash, n: n}
	m := &Mutex[Tx]{locker: l, target: p.some(), permit: p}
	switch {
	case key == "":
		m.err = errors.New("the key of the semaphore is empty")
	case n < 1 || n > locktable.QueuePermit:
		m.err = fmt.Errorf("Semaphore of %d permits: the number must be from 1 to %d", n, locktable.QueuePermit)
	}
	return m
}

var errPermitTx = errors.New("a Semaphore is not taken in a transaction of the caller's: use Do, or hold it by Lock " +
	"meanwhile")

// permit is one of the first n permits of a semaphore. Each has a row, and so has the queue: who
// has that is the first that waits, and looks for a permit. Who sees that nobody waits tries at
// once: it came before whoever queues later.
type permit[Tx any] struct {
	locker    *Locker[Tx]
	key, hash string
	n         int
}

// some is one of some rows of the semaphore.
func (p *permit[Tx]) some(rows ...string) target {
	return p.locker.permits(Call{Column: semaphoreColumn, Names: []string{p.key}}, p.hash, rows...)
}

// look finds the numbers of the rows, that of the queue last, or makes them. While somebody waits
// it is ErrNotAcquired besides.
func (p *permit[Tx]) look(ctx context.Context) (rows []string, err error) {
	l := p.locker
	found, err := l.find(ctx, false)
	if err != nil {
		return nil, err
	}
	sql, args := found.Kinds.Permits, []any{p.hash, int64(p.n), l.config.storedName(p.key)}
	for range 5 { // others may make some at the same time, and meet in a deadlock
		lines, err := l.ask(ctx, sql.Look.With(args[:2]...))
		if err != nil {
			return nil, err
		}
		numbers, free := strings.CutSuffix(strings.Join(lines, " "), " free")
		if rows = strings.Fields(numbers); len(rows) > p.n {
			if !free {
				err = fmt.Errorf("%w: another session waits for it", ErrNotAcquired)
			}
			return rows, err
		}
		_, err = l.ask(ctx, sql.Make.With(args...))
		if err != nil && l.driver.Classify(err) == dialects.Final {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: the rows of the semaphore cannot be made", ErrNoRow)
}

// acquire takes a permit: at once where nobody waits, else as the first of the queue.
func (p *permit[Tx]) acquire(m *Mutex[Tx], ctx, wait context.Context, try bool, work *dialects.Work) (g grant[Tx],
	err error,
) {
	l, here := p.locker, lineName{column: semaphoreColumn, values: p.hash}
	if !try {
		place := l.candidates.Enter(here, false)
		defer place.GoOn(queue.Left)
		if err = l.awaitPlace(ctx, wait, place); err != nil {
			return g, err
		}
	} else if l.candidates.Waiting(here) > 0 {
		return g, fmt.Errorf("%w: other callers of this process wait for it", ErrNotAcquired)
	}
	one, rows := *m, []string(nil)
	take := func(wait context.Context) error {
		g, err = one.begin(ctx, wait, true, work)
		return err
	}
	err = answered(wait, func(wait context.Context) error {
		if rows, err = p.look(wait); rows != nil {
			one.target = p.some(rows[:p.n]...)
		}
		if err != nil {
			return err
		}
		return take(wait)
	})
	if !try && rows != nil && missed(wait, err) {
		err = p.await(ctx, wait, p.some(rows[len(rows)-1]), take)
	}
	g.permit = max(slices.Index(rows, g.Row), 0)
	return g, err
}

// await takes a permit as the first of the queue.
func (p *permit[Tx]) await(ctx, wait context.Context, queue target, take func(context.Context) error) error {
	if p.locker.info().PoolSize == 1 {
		return fmt.Errorf("%w: a wait for a permit takes two connections, and the pool has one", ErrNotAcquired)
	}
	head, err := (&Mutex[Tx]{locker: p.locker, target: queue}).hold(wait, false)
	if err != nil {
		return err
	}
	defer head.Unlock(ctx)
	first, freed := head.Context(), p.locker.firstFor(p.hash)
	defer p.locker.first.Delete(p.hash)
	// Behind a pooler, whoever asks next may get the last words to a holder that was ended.
	for forgiven := false; ; {
		err := answered(wait, take)
		forgiven = !forgiven && !isOver(wait) && !errors.Is(err, ErrLost) &&
			p.locker.driver.Classify(err) != dialects.Final
		if !forgiven && !missed(wait, err) {
			return err
		}
		if !p.locker.pause(wait, lookEvery, freed) {
			return fmt.Errorf("%w: no permit came free in time", ErrNotAcquired)
		}
		if ended := context.Cause(first); ended != nil {
			return fmt.Errorf("%w: the session in the queue has ended: %v", ErrNotAcquired, ended)
		}
	}
}

// missed tells whether another try may get a permit.
func missed(wait context.Context, err error) bool {
	return errors.Is(err, ErrNotAcquired) && !isOver(wait)
}

// answered asks again where no answer comes in time: a KILL QUERY that falls between two statements
// of a query gets none.
func answered(wait context.Context, ask func(context.Context) error) error {
	for limit := answerLimit; ; limit *= 2 {
		brief, cancel := context.WithTimeout(wait, limit)
		err := ask(brief)
		late := brief.Err() != nil && !isOver(wait)
		cancel()
		if err == nil || !late {
			return err
		}
	}
}
