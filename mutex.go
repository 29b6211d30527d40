package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txlock/txlock/dialects"
)

// Mutex names rows to lock. It holds no state: many goroutines may use one value, and any two that
// name the same key exclude each other.
type Mutex[Tx any] struct {
	locker  *Locker[Tx]
	target  target
	permit  *permit[Tx]   // of a semaphore; nil: it is none
	within  time.Duration // 0 without a limit
	shared  bool
	retries int // how often a call may run again
	err     error

	statements *dialects.Work // of a copy for Exec; nil: none
	untilClose bool           // the wait ends with Close, too
	attached   *attached      // to a Do; nil: nothing is
}

// Mutex names one key or more, at most 256. They are locked together in one statement, in an order
// that is the same everywhere, so two calls with the same keys in any order cannot block each
// other. A key is any text of at least one byte. No key, an empty one, or more than 256 are an
// error from the call that locks, before anything is sent. Mutex sends nothing.
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
// holds the same rows alone. Both kinds wait in one queue of the server; docs/databases.md says
// where readers may pass a writer. Callers of Shared do not wait in the process, and each takes a
// connection. A session that holds a row alone may share it as well; one that shares it cannot have
// it alone, which is [ErrUpgrade], also of keys whose slots collide. [Mutex.LockTx] cannot know:
// there it waits for the others, and of two that do so one gets [ErrDeadlock]. A token is compared
// with those of exclusive locks only. On a server that only reads, a call is [ErrUnsafeEngine].
func (m *Mutex[Tx]) Shared() *Mutex[Tx] {
	sharing := *m
	sharing.shared, sharing.target.call.Shared = true, true
	if m.permit != nil && sharing.err == nil {
		sharing.err = errors.New("Shared of a Semaphore: a permit has one holder; name more permits")
	}
	return &sharing
}

// target is what a Mutex locks, as data.
type target struct {
	name string // for errors and the log; empty: the names of call
	call Call   // what a Tracer is told: a table unless it is the lock table, the column and the names
	// own are rows of a table of txlock's, by what the lock table is; nil: they are rows.
	own  func(found *dialects.LockTable) dialects.Request
	rows dialects.Request // of a table of the caller's
}

func (t *target) String() string {
	if t.name != "" {
		return t.name
	}
	return nameOf(t.call.Names)
}

// request is what the driver is asked for. Connected says that the caller has a connection.
func (m *Mutex[Tx]) request(ctx context.Context, try, connected bool) (dialects.Request, error) {
	request := m.target.rows
	if m.target.own != nil {
		found, err := m.locker.find(ctx, connected)
		if err != nil {
			return request, err
		}
		request = m.target.own(found)
	}
	request.Try, request.Shared = try, m.shared
	if m.shared {
		request.Label = "s" + request.Label
	}
	return request, nil
}

// ready is an error for what is wrong without a look at the database.
func (m *Mutex[Tx]) ready() error { return cmp.Or(m.locker.ready(), m.err) }

// limitWait checks what can be checked without the database, and bounds the wait by Within.
func (m *Mutex[Tx]) limitWait(ctx context.Context) (wait context.Context, cancel context.CancelFunc, err error) {
	if err = cmp.Or(m.locker.ready(), m.err); err != nil {
		return nil, nil, err
	}
	if ended := ctx.Err(); ended != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrNotAcquired, ended)
	}
	if m.within == 0 {
		return ctx, nothing, nil
	}
	wait, cancel = context.WithTimeout(ctx, m.within)
	return wait, cancel, nil
}

// waitError adds to the error of a wait what ended it: any error is ErrNotAcquired when ctx or
// Within has ended the wait, but for those that say more.
func (m *Mutex[Tx]) waitError(ctx, wait context.Context, err error) error {
	if err == nil {
		return nil
	}
	if isOfWork(err) {
		return err
	}
	for _, certain := range []error{
		ErrNoRow, ErrNotInstalled, ErrIsolation, ErrDeadlock, ErrLost, ErrUpgrade,
	} {
		if errors.Is(err, certain) {
			return err
		}
	}
	ended := ctx.Err()
	if ended == nil && isOver(wait) {
		ended = context.DeadlineExceeded
	}
	switch {
	case ended == nil && m.locker.closed.Load() && !errors.Is(err, ErrClosed):
		return fmt.Errorf("%w: %w", ErrClosed, err) // the pool is closed as well, and says so in its own words
	case ended == nil:
		return err
	case errors.Is(err, ErrNotAcquired):
		return fmt.Errorf("%w (%w)", err, ended)
	}
	return fmt.Errorf("%w: %w (%w)", ErrNotAcquired, err, ended)
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
