package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// Mutex names rows to lock. Any two that name the same key exclude each other.
type Mutex[Tx any] struct {
	locker  *Locker[Tx]
	target  target
	permit  *permit[Tx]   // of a semaphore; nil: it is none
	within  time.Duration // 0 without a limit
	retries int           // how often a call may run again
	err     error

	untilClose bool      // the wait ends with Close, too
	attached   *attached // to a Do; nil: nothing is
}

// Mutex names one key or more, at most 256, each a text of at least one byte. They are locked in
// one statement, and in one order everywhere, so calls with the same keys cannot block each other.
func (l *Locker[Tx]) Mutex(keys ...string) *Mutex[Tx] {
	m := &Mutex[Tx]{locker: l, target: l.slots(slices.Clone(keys)...)}
	switch {
	case len(keys) == 0:
		m.err = errors.New("no key given")
	case slices.Contains(keys, ""):
		m.err = errors.New("a key is empty")
	case len(keys) > maxRows:
		m.err = tooMany(len(slices.Compact(slices.Sorted(slices.Values(keys)))))
	}
	return m
}

// slots are rows of the lock table, each once, in ascending order. Keys hash to them once their
// number is known.
func (l *Locker[Tx]) slots(keys ...string) target {
	return target{call: Call{Names: keys}, rows: func(found *dialects.LockTable) dialects.Request {
		slots := make([]int, 0, 8)
		for _, key := range keys {
			slots = append(slots, dialects.SlotOf(key, found.Slots))
		}
		slices.Sort(slots)
		slots = slices.Compact(slots)
		values, shown := make([]dialects.Value, len(slots)), keys
		for i, slot := range slots {
			values[i].Text = strconv.Itoa(slot)
		}
		if l.config.hidden {
			shown = nil
			for _, slot := range values {
				shown = append(shown, label.Hidden(slot.Text))
			}
		}
		return dialects.Request{
			Table: found.Name, Column: slotColumn, Values: values, Ours: true, Slots: found.Slots,
			Label: label.Keys(shown...),
		}
	}}
}

// slotColumn is the lock table's primary key.
const slotColumn = "slot"

// Within returns a copy that waits at most d for the lock. The wait for a connection of the pool
// counts, the holding does not. d must be positive.
func (m *Mutex[Tx]) Within(d time.Duration) *Mutex[Tx] {
	limited := *m
	limited.within = d
	if d <= 0 && limited.err == nil {
		limited.err = fmt.Errorf("Within(%v): the limit must be positive", d)
	}
	return &limited
}

// Shared returns a copy that shares: any number of sessions hold it at the same time, while none
// holds the same rows alone. Both kinds wait in one queue of the server; docs/shared.md says where
// readers may pass a writer. A session that holds a row alone may share it as well; the other way
// round is [ErrUpgrade], but in LockTx, which cannot know: of two that do so, one gets
// [ErrDeadlock]. A token is compared with those of exclusive locks only.
func (m *Mutex[Tx]) Shared() *Mutex[Tx] {
	sharing := *m
	sharing.target.call.Shared = true
	if m.permit != nil && sharing.err == nil {
		sharing.err = errors.New("Shared of a Semaphore: a permit has one holder; name more permits")
	}
	return &sharing
}

// target is what a Mutex locks, as data.
type target struct {
	name string // for errors and the log; empty: the names of call
	call Call   // what a Tracer is told: the table of Rows, the column and the names
	// rows are by the lock table, which Rows need not.
	rows func(found *dialects.LockTable) dialects.Request
}

func (t *target) String() string {
	if t.name != "" {
		return t.name
	}
	return nameOf(t.call.Names)
}

// request is what the driver is asked for. Connected says that the caller has a connection. The
// table of tokens is found for a Do, too: a lock in its work will ask for one, and then has one.
func (m *Mutex[Tx]) request(ctx context.Context, try, connected bool, work *dialects.Work) (
	request dialects.Request, err error,
) {
	l := m.locker
	found := l.found.Load()
	if found == nil && (m.target.call.Table == "" || l.config.fencing && (work == nil || !connected)) {
		if found, err = l.find(ctx, connected); err != nil {
			return request, err
		}
	}
	request = m.target.rows(found)
	if m.attached != nil && !connected {
		look := m.attached.look(found.Kinds)
		work = &dialects.Work{Look: &look}
	}
	if l.config.fencing && work == nil {
		request.Fence = found.Name
	}
	request.Try, request.Shared, request.Work, request.Lease = try, m.target.call.Shared, work, l.config.lease
	if request.Shared {
		request.Label = "s" + request.Label
	}
	return request, nil
}

var errZeroLocker = errors.New("a zero Locker or Mutex: New and Locker.Mutex make one")

// ready is an error for what is wrong without a look at the database.
func (l *Locker[Tx]) ready() error {
	if l == nil || l.info == nil {
		return errZeroLocker
	}
	if l.config.err != nil {
		return l.config.err
	}
	switch info := l.info(); {
	case info.Err != nil:
		return info.Err
	case l.config.lease < info.MinLease:
		return fmt.Errorf("WithLease(%v): the lease must be at least %v, the server's timer is no finer",
			l.config.lease, info.MinLease)
	}
	return context.Cause(l.closing)
}

// limitWait checks what can be checked without the database, and bounds the wait by Within.
func (m *Mutex[Tx]) limitWait(ctx context.Context) (wait context.Context, cancel context.CancelFunc, err error) {
	if err = cmp.Or(m.locker.ready(), m.err); err != nil {
		return nil, nil, err
	}
	if ended := ctx.Err(); ended != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrNotAcquired, ended)
	}
	if m.permit != nil && m.locker.carriesOpen(ctx) {
		return nil, nil, errInSession
	}
	wait, cancel = ctx, nothing
	if m.within > 0 {
		wait, cancel = context.WithTimeout(ctx, m.within)
	}
	if m.untilClose {
		return m.locker.untilClose(wait, cancel)
	}
	return wait, cancel, nil
}

// bounded makes a call that Within bounds.
func (m *Mutex[Tx]) bounded(ctx context.Context, verb string, call func(context.Context) error) error {
	wait, cancel, err := m.limitWait(ctx)
	if err == nil {
		defer cancel()
		err = m.waitError(wait, call(wait))
	}
	return m.wrap(verb, err)
}

// nothing is not a literal in a generic function, which would be allocated at each call.
var nothing context.CancelFunc = func() {}

func (m *Mutex[Tx]) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(verb+" "+m.target.String(), err)
}

// wrap says where an error comes from.
func wrap(where string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("txlock: %s: %w", where, err)
}

// joinErrors is err, and a further error, as of the way out, unless err says that already.
func joinErrors(err, further error) error {
	switch {
	case further == nil || errors.Is(err, further):
		return err
	case err == nil:
		return further
	case errors.Is(err, ErrLost) && errors.Is(further, ErrLost) &&
		errors.Is(err, ErrClosed) == errors.Is(further, ErrClosed):
		return err
	}
	return fmt.Errorf("%w (%w)", err, further)
}

// waitError adds to the error of a wait what ended it: any error is ErrNotAcquired when the wait is
// over, but for those that say more.
func (m *Mutex[Tx]) waitError(wait context.Context, err error) error {
	m.locker.invalidate(err)
	certain := []error{ErrNoRow, ErrNotInstalled, ErrIsolation, ErrDeadlock, ErrLost, ErrUpgrade}
	if err == nil || isOfWork(err) || slices.ContainsFunc(certain, func(c error) bool { return errors.Is(err, c) }) {
		return err
	}
	ended := wait.Err()
	if ended == nil && isOver(wait) {
		ended = context.DeadlineExceeded
	}
	switch {
	case m.locker.closing.Err() != nil && errors.Is(context.Cause(wait), ErrClosed):
		return ErrClosed
	case ended == nil && m.locker.closing.Err() != nil && !errors.Is(err, ErrClosed):
		return fmt.Errorf("%w: %w", ErrClosed, err) // the pool is closed as well, and says so in its own words
	case ended != nil && !errors.Is(err, ErrNotAcquired):
		err = fmt.Errorf("%w: %w", ErrNotAcquired, err)
	}
	return joinErrors(err, ended)
}

// isOver tells whether a wait has ended. The server's clock, or a busy machine, may be ahead of the
// timer of its context.
func isOver(wait context.Context) bool {
	deadline, limited := wait.Deadline()
	return wait.Err() != nil || limited && !time.Now().Before(deadline)
}

// maxRows bounds one Mutex. On PostgreSQL each of its rows has a queue lock, and the server has
// room for max_locks_per_transaction (64) of each connection. MariaDB reads the whole lock table
// for a list of a thousand slots, and so locks it; MySQL takes seconds for some thousand rows.
const maxRows = 256

func tooMany(rows int) error {
	if rows <= maxRows {
		return nil
	}
	return fmt.Errorf("%d rows at once, at most %d are possible; lock a coarser key", rows, maxRows)
}

// made is a part that only a value has which was made as it must be.
func made[Part any](part *Part, by string) *Part {
	if part == nil {
		panic("txlock: a zero " + by + " makes one")
	}
	return part
}
