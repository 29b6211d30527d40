package txlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
	"github.com/txlock/txlock/internal/locktable"
)

const (
	// maxPermits bounds a semaphore. Each of its permits has a row, and a call names them all.
	maxPermits = locktable.QueuePermit
	// semaphoreColumn stands where locks of rows have the name of a column.
	semaphoreColumn = "semaphore"
	// lookEvery is how often the first that waits looks for a permit.
	lookEvery = 20 * time.Millisecond
	// answerLimit is how long the answer to what waits for nobody may take at first.
	answerLimit = 600 * time.Millisecond
)

// Semaphore names a lock that n sessions may hold at once, each with one of the permits 0 to n-1,
// which [Lock.Permit] tells. It is free again when its holder releases it or dies. Key is any text
// of at least one byte, n from 1 to 1000; others are an error from the call that locks. Clients
// that disagree on n keep to their own. Each permit ever named has a row, so take few keys. Waiters
// are served in order, but in a session that holds other locks; a wait takes two connections.
// LockTx, TryLockTx and Shared are errors. No database sees a deadlock of such waits: bound them by
// [Mutex.Within]. docs/databases.md has more. Semaphore sends nothing.
func (l *Locker[Tx]) Semaphore(key string, n int) *Mutex[Tx] {
	p := &permit[Tx]{locker: l, key: key, hash: label.Hash(key), n: n}
	m := p.mutex(func(rows []string) []string { return rows[:n] })
	m.permit = p
	switch {
	case key == "":
		m.err = errors.New("the key of the semaphore is empty")
	case n < 1 || n > maxPermits:
		m.err = fmt.Errorf("Semaphore of %d permits: the number must be from 1 to %d", n, maxPermits)
	}
	return m
}

var errPermitTx = errors.New("a Semaphore is not taken in a transaction of the caller's: use Do, or hold it by Lock " +
	"meanwhile")

// permit is one of the first n permits of a semaphore. Who has the lock of the queue's row, which
// is behind theirs, is the first that waits.
type permit[Tx any] struct {
	locker    *Locker[Tx]
	key, hash string
	n         int
}

// semaphore is what a Locker knows of one.
type semaphore struct {
	rows  atomic.Pointer[[]string] // their numbers, by permit, that of the queue last; nil: not known
	freed chan struct{}            // a session of the Locker has given a permit back
}

func (p *permit[Tx]) String() string {
	return fmt.Sprintf("%s (%d permits)", nameOf([]string{p.key}), p.n)
}

// mutex locks one of some rows of the semaphore.
func (p *permit[Tx]) mutex(some func(rows []string) []string) *Mutex[Tx] {
	request := func(ctx context.Context, connected bool) (dialects.Request, error) {
		rows, texts, err := p.rows(ctx, connected)
		if err != nil {
			return dialects.Request{}, err
		}
		rows = some(rows)
		return texts.Request(p.hash, label.Permits(len(rows), p.locker.config.shownName(p.key)), rows), nil
	}
	call := Call{Column: semaphoreColumn, Names: []string{p.key}}
	return &Mutex[Tx]{locker: p.locker, target: target{name: p.String(), call: call, request: request}}
}

func (p *permit[Tx]) known() *semaphore {
	known, ok := p.locker.semaphores.Load(p.hash)
	if !ok {
		known, _ = p.locker.semaphores.LoadOrStore(p.hash, &semaphore{freed: make(chan struct{}, 1)})
	}
	return known.(*semaphore)
}

// rows finds the rows, or makes them, once.
func (p *permit[Tx]) rows(ctx context.Context, connected bool) (rows []string, texts dialects.PermitSQL, err error) {
	l, known := p.locker, p.known()
	found, err := l.find(ctx, connected)
	if err != nil {
		return nil, texts, err
	}
	texts = found.Kinds.Permits
	if rows := known.rows.Load(); rows != nil && len(*rows) > p.n {
		return *rows, texts, nil
	}
	args := []any{p.hash, int64(p.n), l.config.storedName(p.key)}
	find := dialects.Query{SQL: texts.Find, Args: args[:2], Table: texts.Table, Reads: true}
	made := dialects.Query{SQL: texts.Make, Args: args, Table: texts.Table}
	rows, err = lookUp(ctx, connected, "the permits were", "take one", func(ctx context.Context) ([]string, error) {
		for range 5 { // others may make some at the same time, and meet in a deadlock
			if rows, err := l.ask(ctx, find); err != nil || len(rows) > p.n {
				return rows, err
			}
			if _, err := l.ask(ctx, made); err != nil && l.driver.Classify(err) == dialects.Final {
				return nil, err
			}
		}
		return nil, fmt.Errorf("%w: the rows of semaphore %s cannot be made", ErrNoRow, p)
	})
	if err == nil {
		known.rows.Store(&rows)
	}
	return rows, texts, err
}

func (p *permit[Tx]) invalidate(err error) (retry bool) {
	return errors.Is(err, ErrNoRow) && p.known().rows.Swap(nil) != nil
}

// acquire takes a permit. Who sees that nobody waits tries at once: it came before whoever queues
// later. Others, and those that miss, wait for their turn, unless they try. In a session that holds
// other locks nobody looks, or queues: that would take another connection.
func (p *permit[Tx]) acquire(m *Mutex[Tx], ctx, wait context.Context, try, work bool) (g grant[Tx], err error) {
	take := func() error {
		return answered(wait, func(brief context.Context) error {
			g, err = p.acquireRows(m, ctx, brief, true, work)
			return err
		})
	}
	// The line of the callers of this process.
	line := lineOf(p.locker.config.table, semaphoreColumn, dialects.Value{Text: p.hash})
	nested := p.locker.carriesOpen(ctx)
	switch {
	case nested && try:
		err = take()
	case nested:
		err = p.retake(wait, wait, take)
	case !try:
		var place *place
		if place, err = p.locker.awaitPlace(ctx, wait, p.locker.candidates, line, false); err == nil {
			defer place.Leave()
			err = p.await(ctx, wait, take)
		}
	case p.locker.candidates.Waiting(line) > 0:
		err = fmt.Errorf("%w: other callers of this process wait for it", ErrNotAcquired)
	default:
		err = p.lookAndTake(wait, take)
	}
	if err != nil {
		return g, err
	}
	known := p.known()
	if rows := known.rows.Load(); rows != nil {
		g.permit = max(slices.Index(*rows, g.Row), 0)
	}
	if !nested {
		g.whenReleased(func() {
			select {
			case known.freed <- struct{}{}:
			default:
			}
		})
	}
	return g, nil
}

// acquireRows is that of a Mutex, once more where the rows that are known have gone.
func (p *permit[Tx]) acquireRows(m *Mutex[Tx], ctx, wait context.Context, try, work bool) (grant[Tx], error) {
	g, err := m.acquireRows(ctx, wait, try, work)
	if p.invalidate(err) {
		return m.acquireRows(ctx, wait, try, work)
	}
	return g, err
}

// lookAndTake takes a permit, unless another session waits.
func (p *permit[Tx]) lookAndTake(wait context.Context, take func() error) error {
	err := answered(wait, func(ctx context.Context) error {
		for {
			rows, texts, err := p.rows(ctx, false)
			if err != nil {
				return err
			}
			queue, _ := strconv.ParseInt(rows[len(rows)-1], 10, 64)
			look := dialects.Query{SQL: texts.Look, Args: []any{queue, p.hash}, Table: texts.Table}
			is, err := p.locker.ask(ctx, look)
			switch {
			case err != nil:
				return err
			case len(is) == 1:
				return fmt.Errorf("%w: another session waits for it", ErrNotAcquired)
			case len(is) > 1 || !p.invalidate(ErrNoRow): // else the table was made anew
				return nil
			}
		}
	})
	if err == nil {
		err = take()
	}
	return err
}

// await takes a permit as the first of this process: at once, or as the first of the queue.
func (p *permit[Tx]) await(ctx, wait context.Context, take func() error) error {
	err := p.lookAndTake(wait, take)
	if !missed(wait, err) {
		return err
	}
	if p.locker.driver.Info().PoolSize == 1 {
		return fmt.Errorf("%w, and a wait for one takes two connections, where the pool has one", err)
	}
	queue := p.mutex(func(rows []string) []string { return rows[len(rows)-1:] })
	g, err := p.acquireRows(queue, Apart(ctx), wait, false, false)
	if err != nil {
		return err
	}
	head := g.toLock(ctx, nil)
	defer head.Unlock(ctx)
	return p.retake(wait, head.Context(), take)
}

// retake tries until a permit is free, the wait is over, or the queue was lost.
func (p *permit[Tx]) retake(wait, queue context.Context, take func() error) error {
	for {
		if err := take(); !missed(wait, err) {
			return err
		}
		again := time.NewTimer(lookEvery)
		select {
		case <-again.C:
		case <-p.known().freed:
		case <-wait.Done():
		case <-queue.Done():
		}
		again.Stop()
		switch {
		case wait.Err() != nil:
			return fmt.Errorf("%w: no permit came free in time", ErrNotAcquired)
		case queue.Err() != nil:
			return fmt.Errorf("%w: the session in the queue has ended: %v", ErrNotAcquired, context.Cause(queue))
		}
	}
}

// missed tells whether another try may get a permit.
func missed(wait context.Context, err error) bool {
	return errors.Is(err, ErrNotAcquired) && !errors.Is(err, errBeside) && !isOver(wait)
}

// answered asks again where no answer comes in time: a KILL QUERY that falls between two statements
// of a query gets none.
func answered(wait context.Context, ask func(context.Context) error) error {
	for limit := answerLimit; ; limit *= 2 {
		brief, cancel := context.WithTimeout(wait, limit)
		err := ask(brief)
		late := brief.Err() != nil
		cancel()
		if err == nil || !late || isOver(wait) {
			return err
		}
	}
}
