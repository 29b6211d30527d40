package txlockgocron

import (
	"context"

	"github.com/go-co-op/gocron/v2"
)

// Leave makes the Locker believe that a kept lock is being released, until done is called.
func (l *Locker) Leave(name string) (done func()) {
	released := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving[name] = released
	return func() { close(released) }
}

// Drop releases the lock of a run at once, before the minimum is over.
func (l *Locker) Drop(lock gocron.Lock) error {
	r := lock.(*run)
	r.unwatch()
	return r.held.Unlock(context.Background())
}
