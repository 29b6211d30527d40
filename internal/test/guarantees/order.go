package guarantees

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// atServer is a fixture whose callers all wait at the server.
func atServer[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) *testbed.Fixture[Tx] {
	t.Helper()
	return testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", txlock.WithQueue(testbed.PoolSize))
}

// ServedInOrder shows that thirty waiters are served in the order in which they queued.
func ServedInOrder[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := atServer(t, e, c)
	m := f.Locks.Mutex(f.Key("queue"))
	first := testbed.Lock(t, m)

	const waiting = 30
	var mu sync.Mutex
	var served []int
	var group errgroup.Group
	for i := range waiting {
		group.Go(func() error {
			lock, err := m.Lock(background)
			if err != nil {
				return err
			}
			mu.Lock()
			served = append(served, i)
			mu.Unlock()
			return lock.Unlock(background)
		})
		f.Waiters(t, i+1)
	}
	testbed.Unlock(t, first)
	require.NoError(t, group.Wait())
	require.Len(t, served, waiting)
	overtakers := 0
	for i, who := range served {
		if slices.Min(served[i:]) < who {
			overtakers++
		}
	}
	require.LessOrEqual(t, overtakers, maxOvertakers(e), "served: %v", served)
}

// maxOvertakers is how many of thirty waiters may be served too early. MySQL counts how many waits
// have begun anywhere in the server since a waiter queued, and prefers whoever has waited for long
// by that count. It publishes its preferences one by one, so that a waiter may be preferred a
// moment before an earlier one (lock_wait_publish_new_weights in lock0wait.cc). In hand-written SQL
// beside waits for other rows, one of thirty came too early in 8 of 400 rounds, and in none of 60
// without these.
func maxOvertakers(e *testbed.Engine) int {
	if e.Kind == servers.MySQL {
		return 2
	}
	return 0
}

// TryBehindWaiter shows that a try does not overtake a waiter.
func TryBehindWaiter[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	m := f.Locks.Mutex(f.Key("try"))
	lock := testbed.Lock(t, m)
	var group errgroup.Group
	for i := range 2 {
		group.Go(func() error { return testbed.Cycle(background, m) })
		f.Waiters(t, i+1)
	}
	testbed.Misses(t, m)
	f.Waiters(t, 2) // undisturbed
	testbed.Unlock(t, lock)
	require.NoError(t, group.Wait())
}
