package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// Mutex names rows to lock. Any two that name the same key exclude each other.
type Mutex[Tx any] struct {
	locker  *Locker[Tx]
	target  target
	permit  *permit[Tx]    // of a semaphore; nil: it is none
	free    *dialects.Free // rows that the driver chooses; nil: they are named
	within  time.Duration  // 0 without a limit
	retries int            // how often a call may run again
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
	if m.free != nil {
		work = &dialects.Work{Free: m.free}
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

// nothing is not a literal in a generic function, which would be allocated at each call.
var nothing context.CancelFunc = func() {}

func (m *Mutex[Tx]) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(verb+" "+m.target.String(), err)
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

// Lock waits for the lock and returns it held. ctx and Within limit the wait only, never the
// holding. After an error nothing is held, also when the lock was granted while ctx ended. Every
// Lock needs its Unlock: one that the program has lost sight of stays held until the Locker is
// closed or the program ends; the log warns when the garbage collector finds it.
func (m *Mutex[Tx]) Lock(ctx context.Context) (*Lock, error) {
	return m.lock(ctx, "Lock", false)
}

func (m *Mutex[Tx]) lock(ctx context.Context, verb string, try bool) (lock *Lock, err error) {
	var trace *trace
	if m.locker != nil && m.locker.config.tracer != nil {
		ctx, trace = m.startTrace(ctx, verb, true)
	}
	if lock, err = m.hold(ctx, try); err != nil {
		err = m.wrap(verb, err)
		trace.answer(err)
		return nil, err
	}
	if lock.trace = trace; trace != nil {
		told := false
		defer func() {
			if !told { // the Tracer panicked, and nobody has the lock that could unlock it
				_ = lock.session.leave(ctx)
			}
		}()
		trace.answer(nil)
		held := lock.Context()
		trace.unfollow = context.AfterFunc(held, func() { trace.end(unlessReleased(context.Cause(held))) })
		told = true
	}
	return lock, nil
}

// hold is Lock for a client that tells the Tracer itself.
func (m *Mutex[Tx]) hold(ctx context.Context, try bool) (*Lock, error) {
	g, err := m.acquire(ctx, try, nil)
	if err != nil {
		return nil, err
	}
	lock := &Lock{session: g.session, calls: g.calls, callCtx: ctx, token: g.Token, permit: g.permit}
	if g.do == nil { // else it ends with the Do
		lock.found = runtime.AddCleanup(lock, g.forgotten, &m.target)
	}
	return lock, nil
}

// forgotten is called by the garbage collector, which the caller's logger must not hold up, with
// the name of a Lock that nobody has any more. A session does not refer to its Locks.
func (s *session[Tx]) forgotten(name *target) {
	if s.life.Err() == nil { // else it was lost
		go s.locker.config.logger.Warn("txlock: a Lock was forgotten: nobody has it, nobody has unlocked it, and it "+
			"stays held", "lock", name.String())
	}
}

// Lock is a held lock. Its methods may be called from many goroutines.
type Lock struct {
	session heldSession
	calls   chan struct{}   // see ownership
	callCtx context.Context // of the call that locked
	token   int64
	permit  int

	mu       sync.Mutex
	ctx      context.Context // made by the first call of Context: many a holder needs none
	cancel   context.CancelCauseFunc
	unlocked bool
	trace    *trace
	found    runtime.Cleanup // says that the Lock was forgotten
}

// heldSession is a session, of whichever transaction type.
type heldSession interface {
	own(values context.Context, calls chan struct{}) (context.Context, context.CancelCauseFunc)
	leave(ctx context.Context) error
}

// Context carries ownership of the lock, for reentry, and the values of the context that Lock was
// called with. It ends when the lock is unlocked, and with cause [ErrLost] when it is lost or the
// Locker is closed: within milliseconds on Linux when the server has closed the connection,
// elsewhere with the next heartbeat; before the lease is over when the network has gone silent.
// Until then, nothing but [Lock.Token] protects what is done outside the database.
func (l *Lock) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == nil {
		panic("txlock: a zero Lock: Mutex.Lock makes one")
	}
	if l.ctx == nil {
		l.ctx, l.cancel = l.session.own(l.callCtx, l.calls)
	}
	if l.unlocked {
		l.cancel(nil)
	}
	return l.ctx
}

// Token returns a fencing token with [WithFencing], else 0. It is larger than that of every lock
// granted before by the same lock table, also across crashes, restarts, and a failover that loses
// no committed transaction. Send it with every write to another system, and with every read that a
// write depends on, and have one refused that is smaller than one seen before.
func (l *Lock) Token() int64 { return l.token }

// Permit tells which permit of a [Locker.Semaphore] was taken, from 0. No other session holds it.
// Of any other lock it is 0.
func (l *Lock) Permit() int { return l.permit }

// Unlock releases the lock, also when ctx has ended. It returns within 5 seconds: a connection on
// which the release is not confirmed is closed, and the server then releases. A second call is
// [ErrNotHeld] and harms nobody. [ErrLost] means that the session broke before: others may have
// held the lock since, nobody knows from when.
func (l *Lock) Unlock(ctx context.Context) error {
	l.mu.Lock()
	again := l.unlocked || l.session == nil
	if l.unlocked = true; !again && l.trace != nil {
		l.trace.unfollow() // the error of the release tells more than the end of the context
	}
	if !again && l.cancel != nil {
		l.cancel(nil) // the holder's work must have ended when the server lets go
	}
	l.mu.Unlock()
	if again {
		return wrap("Unlock", ErrNotHeld)
	}
	l.found.Stop()
	err := l.session.leave(ctx)
	if l.trace != nil {
		l.trace.end(unlessReleased(err))
	}
	if err != nil {
		err = wrap("Unlock", err)
	}
	return err
}
