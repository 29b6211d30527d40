package guarantees

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// crowd is a tracer that counts the callers that wait in the process.
type crowd struct {
	story
	waiting atomic.Int64
}

// Queued implements txlock.QueueTracer.
func (c *crowd) Queued(context.Context) { c.waiting.Add(1) }

// Admitted implements txlock.QueueTracer.
func (c *crowd) Admitted(context.Context) { c.waiting.Add(-1) }

// waits waits until n callers wait in the process.
func (c *crowd) waits(t *testing.T, n int) {
	t.Helper()
	eventually.Every(t, fmt.Sprintf("%d callers in the process", n), time.Millisecond, func() bool {
		return c.waiting.Load() == int64(n)
	})
}

// crowded is a fixture with a crowd.
func crowded[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], size int, address string,
	options ...txlock.Option,
) (*testbed.Fixture[Tx], *crowd) {
	t.Helper()
	waiting := &crowd{}
	return testbed.NewSizedFixture(t, e, c, size, address, append(options, txlock.WithTracer(waiting))...), waiting
}

// lockOrDo locks and unlocks, or does nothing in a Do, and calls hold meanwhile.
func lockOrDo[Tx any](m *txlock.Mutex[Tx], do bool, hold func()) error {
	if do {
		return m.Do(background, func(context.Context, Tx) error {
			hold()
			return nil
		})
	}
	lock, err := m.Lock(background)
	if err != nil {
		return err
	}
	hold()
	return lock.Unlock(background)
}

// QueueLeavesPool shows that a hundred callers of one key leave the pool to others, and that all of
// them are served. Without the queue they would have all ten connections, and the callers of
// another key would wait for the hot one. A pool that is as it comes, also a *sql.DB without a
// limit, does not grow by them.
func QueueLeavesPool[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const callers, few = 100, 8
	for _, size := range []int{10, 0} {
		f, waiting := crowded(t, e, c, size, "")
		hot := f.Locks.Mutex(f.Key("hot"))
		holder := testbed.Lock(t, hot)
		var group errgroup.Group
		served := 0 // guarded by the lock
		for i := range callers {
			group.Go(func() error { return lockOrDo(hot, i%2 == 0, func() { served++ }) })
		}
		if size == 0 {
			eventually.True(t, "they wait in the process", func() bool { return waiting.waiting.Load() >= callers-few })
		} else {
			waiting.waits(t, callers-1)
			f.Waiters(t, 1)
			f.Transactions(t, 2)
		}
		require.LessOrEqual(t, f.Sessions(t), few)
		testbed.Unlock(t, testbed.TryLock(t, f.Locks.Mutex(f.Key("free"))))
		require.NoError(t, f.Locks.Mutex(f.Key("free"), f.Key("hot too")).Within(10*time.Second).
			Do(background, idle[Tx]))
		testbed.Unlock(t, holder)
		require.NoError(t, group.Wait())
		require.Equal(t, callers, served)
		waiting.waits(t, 0)
	}
}

// QueueOrder shows that callers of one process are served in the order of their calls, without a
// connection.
func QueueOrder[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const callers = 30
	f, waiting := crowded(t, e, c, testbed.PoolSize, "", txlock.WithQueue(2))
	m := f.Locks.Mutex(f.Key("queue"))
	first := testbed.Lock(t, m)
	var served []int // guarded by the lock
	var group errgroup.Group
	for i := range callers {
		group.Go(func() error { return lockOrDo(m, i%3 == 0, func() { served = append(served, i) }) })
		f.Waiters(t, 1)
		waiting.waits(t, i)
	}
	testbed.Unlock(t, first)
	require.NoError(t, group.Wait())
	require.Len(t, served, callers)
	for i, who := range served {
		require.Equal(t, i, who, "served: %v", served)
	}
}

// QueuedWaitEnds shows how waits in the process end, and that the server hears nothing of them.
func QueuedWaitEnds[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	proxy := testbed.Proxy(t, e)
	f, waiting := crowded(t, e, c, 4, proxy.Addr(), txlock.WithQueue(1), txlock.WithLease(time.Hour)) // no heartbeat
	m := f.Locks.Mutex(f.Key("queued"))
	holder := testbed.Lock(t, m)
	before := proxy.Bursts()

	require.ErrorContains(t, testbed.Misses(t, m), "of this process")
	require.ErrorIs(t, m.TryDo(background, idle[Tx]), txlock.ErrNotAcquired)

	fastest := time.Hour
	for i := range 100 {
		ctx, cancel := context.WithCancel(background)
		failed := testbed.Go(func() error {
			if i%2 == 0 {
				return m.Do(ctx, idle[Tx])
			}
			return testbed.ErrorOf(m.Lock(ctx))
		})
		waiting.waits(t, 1)
		cancelled := time.Now()
		cancel()
		err := testbed.Receive(t, failed)
		fastest = min(fastest, time.Since(cancelled))
		testbed.ErrorIs(t, err, txlock.ErrNotAcquired, context.Canceled)
		require.ErrorContains(t, err, "the queue of this process")
	}
	require.Less(t, fastest, time.Millisecond)

	for _, wait := range []func(m *txlock.Mutex[Tx]) error{
		func(m *txlock.Mutex[Tx]) error { _, err := m.Lock(background); return err },
		func(m *txlock.Mutex[Tx]) error { return m.Do(background, idle[Tx]) },
	} {
		testbed.ErrorIs(t, wait(m.Within(20*time.Millisecond)), txlock.ErrNotAcquired, context.DeadlineExceeded)
	}
	require.Equal(t, before, proxy.Bursts(), "the server was asked")
	testbed.Unlock(t, holder)
	f.Free(t, f.Key("queued"))
}

// WithinSpansQueue shows that Within counts the wait in the process and that at the server.
func WithinSpansQueue[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, waiting := crowded(t, e, c, 4, "", txlock.WithQueue(1))
	other := testbed.NewFixture(t, e, c)
	held := testbed.Lock(t, other.Locks.Mutex(f.Key("both")))
	m := f.Locks.Mutex(f.Key("both"))
	ctx, cancel := context.WithCancel(background)
	first := testbed.Go(func() error { return testbed.ErrorOf(m.Lock(ctx)) })
	f.Waiters(t, 1)
	const limit, queued = 4 * time.Second, 2 * time.Second
	start := time.Now()
	second := testbed.Go(func() error { return testbed.ErrorOf(m.Within(limit).Lock(background)) })
	waiting.waits(t, 1)
	<-time.After(queued)
	cancel() // the place at the server is the other's now
	require.ErrorIs(t, testbed.Receive(t, first), context.Canceled)
	require.ErrorIs(t, testbed.Receive(t, second), context.DeadlineExceeded)
	require.GreaterOrEqual(t, time.Since(start), limit)
	require.Less(t, time.Since(start), limit+queued, "the wait at the server began with the limit anew")
	testbed.Unlock(t, held)
}

// QueueSeesDeadlocks shows that what holds a session does not wait in the process: with one place a
// key, which others already wait for, the server still sees the circle.
func QueueSeesDeadlocks[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, waiting := crowded(t, e, c, 8, "", txlock.WithQueue(1))
	others := make(chan error, 2)
	opposite(t, f, func() {
		for _, key := range []string{"a", "b"} {
			go func() { others <- lockOrDo(f.Locks.Mutex(f.Key(key)), false, func() {}) }()
		}
		waiting.waits(t, 2)
	})
	for range 2 {
		require.NoError(t, testbed.Receive(t, others))
	}
	f.Free(t, f.Key("a"), f.Key("b"))
}

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
