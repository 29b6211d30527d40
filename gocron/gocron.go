// Package txlockgocron lets several instances of a program share the jobs of their go-co-op/gocron
// v2 schedulers: each run of a job takes place on one instance. It is a gocron.Locker that uses
// locks of txlock.
//
//	locks := txlock.New(driver) // driver: postgres.Open, mysql.Open; Install has run
//	locker, err := txlockgocron.New(locks)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// Give every job a name with gocron.WithName, the same on all instances. The name is what is
// locked. Without it gocron takes the name of the Go function: several closures may share it, and
// it may change from one build to the next.
//
// # Once per tick
//
// Each instance fires by its own clock, and a Locker does not learn for which tick. So a lock alone
// is not enough: a job that ends after a millisecond frees the lock before the next instance fires,
// and would run there again. Therefore the lock of a job is kept for a minimum time, counted from
// the start of the run: 5 s, unless [WithLockAtLeastFor] changes that:
//
//   - Instances that fire for the same tick less than half of that apart run it once. Whatever
//     makes an instance late counts: a clock that is off, a process that is stopped, and gocron's
//     own queues (WithLimitConcurrentJobs, LimitModeWait). The other half is the time a call may
//     wait for a connection; when it is over the job does not run on this instance.
//   - The instance that keeps a lock runs the job again at its own next tick, and begins the
//     minimum anew. A job whose interval is shorter than the minimum thus stays on one instance,
//     however the ticks of the others lie, and loses no tick by it.
//   - A gocron.DurationJob begins when its program does, so that the instances never fire together.
//     Make the minimum longer than the interval, or have them fire together: gocron.CronJob, or
//     gocron.WithStartAt with a rounded time.
//
// When an instance dies or is closed within the minimum, the server frees its locks at once, and an
// instance that is late for the same tick runs it again.
//
// # Once per period
//
// [WithPeriod] has none of these conditions, for jobs that have a name and a period. A marker in
// the database says that the job has run in the present window, by the database's clock. It stays
// when the lock is released or lost, and when the instance dies. The clocks of the instances may be
// off by as much as separates the job's time from the edges of its window.
//
// # Connections
//
// A running job, and a kept lock, each need a connection with an open transaction. Give locks a
// pool of its own, with room for all jobs that begin within the minimum, and for one more where
// jobs have periods: that one marks them. (Set pool_max_conns in the DSN of either Open: the
// default may be as small as 4 with postgres.Open, and is 16 with mysql.Open.) A job that gets no
// connection in time is left out, and only [WithLogger] and gocron.AfterLockError tell.
//
// # Names collide
//
// Names hash to slots. If two jobs share a slot and are due together, one of them is left out on
// every instance, each time. The probability of a shared slot is 0.3 % among 20 jobs, and 7 % among
// 100. More slots make it smaller, see [txlock.WithSlots].
//
// # One instance for all jobs
//
// [Elector] has all jobs run on one instance, with one connection, and the next take over when that
// dies.
//
// # When the lock is lost
//
// gocron does not tell a job that its lock is gone. [Locker.Context] does, and [WithLogger] logs
// it. Work in the same database is safest in a Do of its own within the job: the Do commits only if
// its own lock was held all the time. The context of a job does not own the job's lock. So that Do
// is another owner, without [txlock.Apart]. Give it another key than the job's: under the same key
// it would wait for the job itself.
package txlockgocron

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/txlock/txlock"
)

var (
	_ gocron.Locker = (*Locker)(nil)
	_ gocron.Lock   = (*run)(nil)
)

var errClosed = errors.New("txlockgocron: the Locker is closed")

// Locker is a gocron.Locker for all jobs of a program's schedulers. Jobs of the same name exclude
// each other on all instances that use the same lock table.
type Locker struct {
	try    func(ctx context.Context, name string) (*txlock.Lock, error)
	mark   func(ctx context.Context, name string) (first bool, err error) // of a job with a period
	config config
	// marking has room for one. A call that marks a job asks for a second connection while its lock
	// keeps one: several at once could keep all of the pool from each other.
	marking chan struct{}

	mu      sync.Mutex
	closed  bool
	running map[string]*run          // the latest run of each job that runs here
	kept    map[string]*kept         // the locks of finished jobs; whoever removes one releases it, or runs with it
	leaving map[string]chan struct{} // kept locks that are being released; closed when that is done
}

// New returns a Locker on locks. The caller still owns locks: close the scheduler first, then the
// Locker, then locks. A bad option is an error of New, because gocron drops the errors of Lock.
func New[Tx any](locks *txlock.Locker[Tx], options ...Option) (*Locker, error) {
	c, err := newConfig(options)
	if err == nil && locks == nil {
		err = errors.New("nil locks")
	}
	if err != nil {
		return nil, fmt.Errorf("txlockgocron: %w", err)
	}
	try := func(ctx context.Context, name string) (*txlock.Lock, error) {
		return locks.Mutex(c.prefix + name).TryLock(ctx)
	}
	mark := func(ctx context.Context, name string) (bool, error) {
		once := locks.Once("gocron:" + c.prefix + name).Per(c.periods[name])
		return once.Do(ctx, func(context.Context, Tx) error { return nil })
	}
	return &Locker{
		try: try, mark: mark, config: c, marking: make(chan struct{}, 1),
		running: make(map[string]*run), kept: make(map[string]*kept), leaving: make(map[string]chan struct{}),
	}, nil
}

// Lock locks a job for a run. gocron calls it, with the job's context and name. It never waits for
// another holder. The error is [txlock.ErrNotAcquired] if the job runs on any instance, or if
// another instance keeps its lock. gocron then leaves this tick out here.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	wait, cancel := ctx, context.CancelFunc(func() {})
	if l.config.atLeast > 0 { // otherwise a call that waited for a connection could lock after the minimum of another
		wait, cancel = context.WithTimeout(ctx, l.config.atLeast/2)
	}
	defer cancel()
	held := l.retake(wait, name)
	if held == nil {
		var err error
		if held, err = l.hold(wait, name); err != nil {
			if ctx.Err() == nil && (!errors.Is(err, txlock.ErrNotAcquired) || wait.Err() != nil) {
				l.config.logger.Warn("txlockgocron: a job is left out, for its lock could not be asked for", "job",
					name, "error", err)
			}
			return nil, err
		}
	}
	r := l.begin(name, held)
	if r == nil {
		return nil, errors.Join(errClosed, held.Unlock(ctx))
	}
	return r, nil
}

// hold locks a job that no kept lock is there for, and marks it if it has a period.
func (l *Locker) hold(ctx context.Context, name string) (*txlock.Lock, error) {
	if l.config.periods[name] == 0 {
		return l.try(ctx, name)
	}
	select {
	case l.marking <- struct{}{}:
		defer func() { <-l.marking }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: other jobs wait to be marked: %w", txlock.ErrNotAcquired, ctx.Err())
	}
	held, err := l.try(ctx, name)
	if err != nil {
		return nil, err
	}
	first, err := l.mark(ctx, name)
	if err == nil && first {
		return held, nil
	}
	if err == nil {
		err = fmt.Errorf("%w: it has run in the present period", txlock.ErrNotAcquired)
	}
	_ = held.Unlock(ctx)
	return nil, err
}

// Context returns a copy of ctx that ends with the run of the job of this name, and with cause
// [txlock.ErrLost], which context.Cause tells, as soon as the lock of the run is known to be lost.
// Call it in the job, with the context that gocron gives it:
//
//	func(ctx context.Context) error {
//		ctx = locker.Context(ctx, "nightly report")
//
// If no such job runs on this instance, the context has ended with cause [txlock.ErrNotHeld]. It
// does not own the lock, because a Do with it would then be [txlock.ErrInsideLock]. A Do with it
// has a session of its own, and tells the job whether it has committed. It needs another key than
// the job's: under the same key it would wait for the job itself.
func (l *Locker) Context(ctx context.Context, name string) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	r := l.running[name]
	l.mu.Unlock()
	if r == nil {
		cancel(fmt.Errorf("txlockgocron: job %q does not run here: %w", name, txlock.ErrNotHeld))
		return ctx
	}
	context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })
	return ctx
}

// Close releases the kept locks and waits for that. Running jobs go on under their locks, which end
// with them. Later jobs do not run.
func (l *Locker) Close() error {
	l.mu.Lock()
	l.closed = true
	released := make(chan error, len(l.kept))
	for name, k := range l.kept {
		l.forget(name, k)
		go func() { released <- k.held.Unlock(context.Background()) }()
	}
	leaving := slices.Collect(maps.Values(l.leaving))
	l.mu.Unlock()
	var failed []error
	for range cap(released) {
		failed = append(failed, <-released)
	}
	for _, done := range leaving {
		<-done
	}
	return errors.Join(failed...)
}

// run is the gocron.Lock of one run of a job.
type run struct {
	locker   *Locker
	name     string
	held     *txlock.Lock
	began    time.Time
	ctx      context.Context // ends with the run, or when the lock is lost
	end      context.CancelCauseFunc
	unwatch  func() bool // ends the watch for the loss of the lock
	unlocked atomic.Bool
}

// begin begins a run with a held lock. It returns nil if the Locker is closed.
func (l *Locker) begin(name string, held *txlock.Lock) *run {
	r := &run{locker: l, name: name, held: held, began: time.Now()}
	r.ctx, r.end = context.WithCancelCause(context.Background())
	r.unwatch = context.AfterFunc(held.Context(), func() {
		cause := context.Cause(held.Context())
		r.end(cause)
		l.config.logger.Warn("txlockgocron: a job lost its lock while it runs", "job", name, "error", cause)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		r.unwatch()
		return nil
	}
	l.running[name] = r
	return r
}

// Unlock ends the run: it releases the lock, or keeps it for the rest of the minimum. It does not
// block for that time, because that would hold up Shutdown and the next run of a singleton job. The
// end of ctx does not end the keeping: gocron also ends ctx after the run of a one-time job, for
// which another instance may not have fired yet. [txlock.ErrLost] means that the lock was lost
// during the run; gocron drops that error. A second call returns [txlock.ErrNotHeld].
func (r *run) Unlock(ctx context.Context) error {
	if !r.unlocked.CompareAndSwap(false, true) {
		return fmt.Errorf("txlockgocron: %w", txlock.ErrNotHeld)
	}
	r.unwatch()
	r.end(nil)
	if r.locker.settle(r) {
		return nil
	}
	err := r.held.Unlock(ctx)
	if err != nil && !errors.Is(err, txlock.ErrLost) { // a loss is already in the log
		r.locker.config.logger.Warn("txlockgocron: the lock of a job was not released", "job", r.name, "error", err)
	}
	return err
}
