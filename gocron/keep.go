package txlockgocron

import (
	"context"
	"time"

	"github.com/txlock/txlock"
)

// kept is the lock of a job whose run is over. It is kept until the minimum time is over, the job
// runs again on this instance, the lock is lost, or the Locker is closed.
type kept struct {
	held    *txlock.Lock
	timer   *time.Timer
	unwatch func() bool // ends the watch for the loss of the lock
}

// settle notes that a run is over, and keeps its lock if the minimum is not over. It reports
// whether it keeps the lock.
func (l *Locker) settle(r *run) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[r.name] == r {
		delete(l.running, r.name)
	}
	left := l.config.atLeast - time.Since(r.began)
	if l.closed || l.config.periods[r.name] > 0 || left <= 0 || l.kept[r.name] != nil || r.held.Context().Err() != nil {
		return false
	}
	k := &kept{held: r.held}
	l.kept[r.name] = k
	release := func() { l.release(r.name, k) }
	k.timer = time.AfterFunc(left, release)
	k.unwatch = context.AfterFunc(r.held.Context(), release) // the lock is lost, and its connection must be given back
	return true
}

// retake returns the lock that is kept here for the next run of a job, or nil. It waits for a lock
// that is just being released: otherwise the database would report it as held, and a job whose
// interval is the minimum would lose a tick.
func (l *Locker) retake(ctx context.Context, name string) *txlock.Lock {
	l.mu.Lock()
	if k := l.kept[name]; k != nil && k.held.Context().Err() == nil {
		l.forget(name, k)
		l.mu.Unlock()
		if l.holds(k.held, name) {
			return k.held
		}
		_ = k.held.Unlock(ctx) // the loss is already in the log; this gives the connection back
		return nil
	}
	leaving := l.leaving[name]
	l.mu.Unlock()
	if leaving != nil {
		select {
		case <-leaving:
		case <-ctx.Done():
		}
	}
	return nil
}

// holds reports whether a kept lock is still held, as far as this process can tell. The process may
// have been stopped for longer than the lease, and the context of the lock may not have ended yet.
// So it locks the job again as the same owner, which looks at the connection itself.
func (l *Locker) holds(held *txlock.Lock, name string) bool {
	again, err := l.try(held.Context(), name)
	return err == nil && again.Unlock(context.Background()) == nil
}

// release ends the keeping of a lock, unless that was already done.
func (l *Locker) release(name string, k *kept) {
	l.mu.Lock()
	if l.kept[name] != k {
		l.mu.Unlock()
		return
	}
	l.forget(name, k)
	done := make(chan struct{})
	l.leaving[name] = done
	l.mu.Unlock()

	if err := k.held.Unlock(context.Background()); err != nil {
		l.config.logger.Warn("txlockgocron: the lock of a job that is done was lost before its minimum time was over",
			"job", name, "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leaving[name] == done {
		delete(l.leaving, name)
	}
	close(done)
}

// forget gives the caller the right to end the keeping of a lock. It is called with mu held.
func (l *Locker) forget(name string, k *kept) {
	delete(l.kept, name)
	k.timer.Stop()
	k.unwatch()
}
