// Package txlockgoose lets the replicas of a program run their pressly/goose v3 migrations one
// after the other. It is a lock.Locker of goose that locks a [txlock.Mutex].
//
//	locks := txlock.New(driver) // driver: postgres.Open, mysql.Open; Install has run
//	locker := txlockgoose.New(locks.Mutex("migrations"))
//	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithLocker(locker))
//
//	ctx, stop := txlockgoose.Context(ctx)
//	defer stop()
//	_, err = provider.Up(ctx)
//
// One replica runs what is pending. The others wait in the queue, each gets the lock in turn, finds
// nothing to do, and goes on. One that starts later, when nothing is pending, takes no lock: goose
// looks before it locks. On an empty MySQL or MariaDB two replicas may disturb each other by that:
// one fails with "missing zero version migration", and succeeds when it is started again. No
// replica gives up by itself: [txlock.Mutex.Within], or the end of
// ctx, limits the wait.
//
// # When the lock is lost
//
// goose has no way to hear that its lock is gone, except by the end of its context. [Context] makes
// one that ends with the loss: then the running statement is cancelled, and the next migration does
// not begin. The error of the run matches [txlock.ErrLost] with and without it, because goose joins
// the error of [Locker.Unlock] to its own. A migration that was cancelled outside a transaction may
// have been done in part. An index that CREATE INDEX CONCURRENTLY left is invalid then: drop it.
//
// # Connections
//
// The lock takes a connection for as long as it is awaited or held, and goose another one. So a
// *sql.DB that is for both must allow two, and one more for Go migrations that run on the *sql.DB.
// Give locks a pool of its own, as postgres.Open and mysql.Open do.
//
// # What a migration must not do
//
// A migration runs on goose's connection, not in the session that holds the lock. It must not
// change the lock table: ALTER TABLE would wait for the lock under which it runs. Nor must a Go
// migration lock the same key: it would wait for itself. Other keys are free.
package txlockgoose

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/pressly/goose/v3/lock"

	"github.com/txlock/txlock"
)

var _ lock.Locker = (*Locker)(nil)

// Locker is a lock.Locker of goose, for goose.WithLocker. It may be used again and again, and by
// several Providers: those of one Locker take turns.
type Locker struct {
	wait func(ctx context.Context) (*txlock.Lock, error)
	// turn is full while a call of Lock waits or holds. Unlock cannot tell which Provider it is
	// for. So there is never a second lock to choose from, even when the first one was lost.
	turn chan struct{}

	mu      sync.Mutex
	held    *txlock.Lock // nil between Unlock and Lock
	unwatch func() bool  // ends the watch for the loss of held
}

// New returns a Locker on mutex. Give all replicas the same key, and another one to other sets of
// migrations. New sends nothing: a nil mutex is an error from Lock.
func New[Tx any](mutex *txlock.Mutex[Tx]) *Locker {
	wait := func(context.Context) (*txlock.Lock, error) { return nil, errors.New("txlockgoose: Lock: nil mutex") }
	if mutex != nil {
		wait = mutex.Lock
	}
	return &Locker{wait: wait, turn: make(chan struct{}, 1)}
}

// Lock waits for the lock. goose calls it before a run, with the context of the run. The end of ctx
// ends the wait, and so does the limit of [txlock.Mutex.Within], which does not count the wait for
// another Provider of this Locker. After an error, which is [txlock.ErrNotAcquired] when the wait
// was ended, nothing is held. After success the lock is held until Unlock, also when ctx has ended.
//
// The database is not used. The mutex knows where it locks.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("txlockgoose: Lock: another Provider of this Locker runs: %w: %w", txlock.ErrNotAcquired,
			ctx.Err())
	}
	locked := false
	defer func() {
		if !locked { // also when a Tracer of the mutex panicked
			<-l.turn
		}
	}()
	held, err := l.wait(ctx)
	if err != nil {
		return err
	}
	locked = true
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
	l.unwatch = watch(ctx, held)
	return nil
}

// Unlock releases the lock. goose calls it after the run, and joins its error to that of the run.
// [txlock.ErrLost] means that the lock was lost during the run: another replica may have run
// migrations beside this one. A second call is [txlock.ErrNotHeld], and harms nobody. After any of
// these the Locker can lock again. It works when ctx has ended.
func (l *Locker) Unlock(ctx context.Context, _ *sql.DB) error {
	l.mu.Lock()
	held, unwatch := l.held, l.unwatch
	l.held, l.unwatch = nil, nil
	l.mu.Unlock()
	if held == nil {
		return fmt.Errorf("txlockgoose: Unlock: %w", txlock.ErrNotHeld)
	}
	defer func() { <-l.turn }()
	unwatch()
	return held.Unlock(ctx)
}

// ending is the key of the function that ends a context of Context.
type ending struct{}

// Context returns a copy of ctx for a Provider's methods. It ends, with cause [txlock.ErrLost],
// which context.Cause tells, as soon as a lock is known to be lost that a [Locker] took with it.
// Unlock does not end it, so it serves several runs. Call stop when they are over.
func Context(ctx context.Context) (run context.Context, stop context.CancelFunc) {
	run, end := context.WithCancelCause(ctx)
	return context.WithValue(run, ending{}, end), func() { end(nil) }
}

// watch ends ctx, if it is one of Context, when held is lost. Lock cannot return a context, so the
// context brings along what ends it.
func watch(ctx context.Context, held *txlock.Lock) (unwatch func() bool) {
	end, ok := ctx.Value(ending{}).(context.CancelCauseFunc)
	if !ok {
		return func() bool { return true }
	}
	return context.AfterFunc(held.Context(), func() { end(context.Cause(held.Context())) })
}
