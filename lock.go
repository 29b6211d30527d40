package txlock

import (
	"context"
	"runtime"
	"sync"
)

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

// LockTx waits for the lock in a transaction that the caller began and will end, and the lock with
// it, on PostgreSQL also by a rollback to an earlier savepoint. Where ctx and Within set no limit,
// a lock_timeout below a minute, or innodb_lock_wait_timeout, ends the wait. When ctx ends during
// the grant, LockTx may return nil. After an error the transaction is usable and has its settings,
// but after [ErrLost], and [ErrDeadlock] on MySQL and MariaDB, where some keys of a failed call may
// stay locked. On PostgreSQL it must be at READ COMMITTED, else [ErrIsolation]. On MySQL and
// MariaDB at REPEATABLE READ, lock before the first plain SELECT, whose snapshot stays.
func (m *Mutex[Tx]) LockTx(ctx context.Context, tx Tx) error {
	return m.lockTx(ctx, "LockTx", tx, false)
}

func (m *Mutex[Tx]) lockTx(ctx context.Context, verb string, tx Tx, try bool) error {
	ctx, trace := m.startTrace(ctx, verb, false)
	err := m.lockIn(ctx, verb, tx, try)
	trace.answer(err)
	return err
}

func (m *Mutex[Tx]) lockIn(ctx context.Context, verb string, tx Tx, try bool) error {
	var answer []string
	err := m.bounded(ctx, verb, func(wait context.Context) error {
		if m.permit != nil {
			return errPermitTx
		}
		request, err := m.request(wait, try, true, &anyWork)
		if err == nil {
			request.Work, request.Lease = nil, 0
			err = m.locker.driver.LockTx(wait, tx, request)
		}
		if err != nil || m.attached == nil {
			return err
		}
		found, err := m.locker.find(wait, true)
		if err == nil {
			answer, err = m.locker.driver.Run(wait, m.attached.look(found.Kinds), tx)
		}
		return err
	})
	if err != nil || m.attached == nil {
		return err
	}
	return m.attached.judge(answer)
}
