package guarantees

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/guarantees/testbed"
)

// permits counts who is inside a semaphore.
type permits struct {
	inside, most atomic.Int64
	taken        [8]atomic.Bool
}

func (p *permits) enter() {
	now := p.inside.Add(1)
	for most := p.most.Load(); now > most && !p.most.CompareAndSwap(most, now); most = p.most.Load() {
	}
}

// SemaphoreBound shows that a semaphore lets n in and never one more, whichever process they are
// of, and that each of them has a permit of its own.
func SemaphoreBound[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const n, callers, rounds = 3, 8, 6
	here, there := testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)
	var group errgroup.Group
	var inside permits
	for i := range callers {
		for _, f := range []*testbed.Fixture[Tx]{here, there} {
			m := f.Locks.Semaphore(here.Key("api"), n)
			group.Go(func() error {
				for range rounds {
					if i%2 == 0 {
						lock, err := m.Lock(background)
						if err != nil {
							return err
						}
						if permit := lock.Permit(); permit < 0 || permit >= n || inside.taken[permit].Swap(true) {
							t.Errorf("permit %d is held twice, or none of %d", permit, n)
						}
						inside.enter()
						inside.taken[lock.Permit()].Store(false)
						inside.inside.Add(-1)
						if err := lock.Unlock(background); err != nil {
							return err
						}
						continue
					}
					err := m.Do(background, func(context.Context, Tx) error {
						inside.enter()
						defer inside.inside.Add(-1)
						return nil
					})
					if err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	require.NoError(t, group.Wait())
	require.LessOrEqual(t, inside.most.Load(), int64(n))

	var locks []*txlock.Lock
	for range n {
		lock, err := here.Locks.Semaphore(here.Key("api"), n).TryLock(background)
		require.NoError(t, err, "all are free again")
		locks = append(locks, lock)
	}
	_, err := there.Locks.Semaphore(here.Key("api"), n).TryLock(background)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	_, err = here.Locks.Semaphore(here.Key("api"), n).Within(50 * time.Millisecond).Lock(background)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for _, lock := range locks {
		require.NoError(t, lock.Unlock(background))
	}
}
