package guarantees

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// headWaits waits until a session looks for a permit of the semaphore, and n more are in the queue
// behind it. Nobody else may use the semaphore of that key.
func headWaits[Tx any](t *testing.T, f *testbed.Fixture[Tx], key string, n int) {
	t.Helper()
	eventually.Every(t, fmt.Sprintf("a head and %d behind it", n), testbed.PollEvery, func() bool {
		if f.Postgres {
			return f.Total(t, `SELECT COUNT(*) FROM pg_locks l JOIN public.txlock_slots_permits p ON p.id = l.objid::int
				WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND permit = 1000
				AND classid = 'public.txlock_slots_permits'::regclass AND hash = '`+testbed.HashOf(key)+`'`) == n+1
		}
		waiting := f.Total(t, `SELECT COUNT(*) FROM information_schema.processlist
			WHERE info LIKE '%(1 `+key+`)%FOR UPDATE'`)
		free := f.Total(t, "SELECT COUNT(*) FROM "+testbed.TableOf(f.Engine, "txlock_slots_permits")+
			" WHERE permit = 1000 AND hash = '"+testbed.HashOf(key)+"' FOR UPDATE SKIP LOCKED")
		return free == 0 && waiting == n
	})
}

// SemaphoreOrder shows that waiters for a permit are served in the order in which they queued at
// the server, and those of a process in the order of their calls.
func SemaphoreOrder[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const processes, waiters = 3, 6
	f, waiting := crowded(t, e, c, testbed.PoolSize, "")
	key := f.Key("queue")
	m := f.Locks.Semaphore(key, 2)
	stays := testbed.Lock(t, m)
	first := testbed.Lock(t, m)
	var served []int // guarded by the permit that goes around
	var group errgroup.Group
	wait := func(m *txlock.Mutex[Tx], i int) {
		group.Go(func() error { return lockOrDo(m, i%3 == 0, func() { served = append(served, i) }) })
	}
	for i := range processes {
		wait(testbed.NewFixture(t, e, c).Locks.Semaphore(key, 2), i)
		headWaits(t, f, key, i)
	}
	for i := range waiters {
		wait(m, processes+i)
		if i == 0 {
			headWaits(t, f, key, processes) // one of them is at the server
		}
		waiting.waits(t, i)
	}
	testbed.Unlock(t, first)
	require.NoError(t, group.Wait())
	require.Len(t, served, processes+waiters)
	for i, who := range served {
		require.Equal(t, i, who, "served: %v", served)
	}
	testbed.Unlock(t, stays)
}

// SemaphoreKilled shows that somebody's cancels, which hit looks and probes, cost a second at most,
// and spoil nothing.
func SemaphoreKilled[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	pace := 30 * time.Millisecond
	endsPromptly(t, "a time in which nobody had a permit", func() time.Duration {
		defer func() { pace *= 2 }() // on a busy machine each cancel of the first round may hit all callers
		return longestStandstill(t, f, pace)
	})
	f.Transactions(t, 0)
}

// longestStandstill is how long nobody got a permit while statements are cancelled at this pace.
func longestStandstill[Tx any](t *testing.T, f *testbed.Fixture[Tx], pace time.Duration) time.Duration {
	t.Helper()
	const callers, span = 8, 3 * time.Second
	m := f.Locks.Semaphore(f.Key("api"), 2).Within(10 * time.Second)
	over, end := context.WithTimeout(background, span)
	defer end()
	var group errgroup.Group
	granted := make(chan time.Time, callers)
	for range callers {
		group.Go(func() error {
			for over.Err() == nil {
				lock, err := m.Lock(background)
				if err == nil { // else its wait in the queue was hit, or a connection that began
					granted <- time.Now()
					_ = lock.Unlock(background)
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		for ticks := time.NewTicker(pace); over.Err() == nil; <-ticks.C {
			f.CancelStatements(t)
		}
		return nil
	})
	done := testbed.Go(func() error { defer close(granted); return group.Wait() })
	last, longest := time.Now(), time.Duration(0)
	for at := range granted {
		longest, last = max(longest, at.Sub(last)), at
	}
	require.NoError(t, <-done)
	deadline, _ := over.Deadline()
	return max(longest, deadline.Sub(last))
}

// SemaphoreCancelled shows that waits that end at any moment leave nothing behind: no permit, no
// place in the queue, no connection.
func SemaphoreCancelled[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const n, callers, rounds = 2, 6, 12
	f, there := testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)
	key := f.Key("api")
	var group errgroup.Group
	for i := range callers {
		m := []*txlock.Locker[Tx]{f.Locks, there.Locks}[i%2].Semaphore(key, n)
		group.Go(func() error {
			for round := range rounds {
				ctx, cancel := context.WithCancel(background)
				timer := time.AfterFunc(time.Duration((i*7+round*5)%40)*time.Millisecond, cancel)
				lock, err := m.Lock(ctx)
				if err == nil {
					<-ctx.Done() // so that others wait
					err = lock.Unlock(background)
				} else if errors.Is(err, txlock.ErrNotAcquired) && errors.Is(err, context.Canceled) {
					err = nil
				}
				timer.Stop()
				cancel()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	f.Transactions(t, 0)
	there.Transactions(t, 0)
	for range n {
		lock := testbed.TryLock(t, f.Locks.Semaphore(key, n))
		defer lock.Unlock(background)
	}
}

// SemaphoreCosts shows that many waiters of two processes take one connection each, and send little
// between them, and that a pool that is full of holders and waiters goes on.
func SemaphoreCosts[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const waiters, n = 32, 2
	proxy := testbed.Proxy(t, e)
	here, waiting := crowded(t, e, c, n+1, proxy.Addr(), txlock.WithLease(time.Hour)) // no heartbeat
	there, more := crowded(t, e, c, n+1, proxy.Addr(), txlock.WithLease(time.Hour))
	key := here.Key("api")
	var holders []*txlock.Lock
	for range n {
		lock := testbed.Lock(t, here.Locks.Semaphore(key, n))
		holders = append(holders, lock)
	}
	var group errgroup.Group
	queue := func(f *testbed.Fixture[Tx], crowd *crowd, heads int) {
		for i := range waiters {
			group.Go(func() error { return lockOrDo(f.Locks.Semaphore(key, n), i%2 == 0, func() {}) })
		}
		crowd.waits(t, waiters-1)
		headWaits(t, here, key, heads)
	}
	queue(there, more, 0) // first, since it has a connection left to look with
	queue(here, waiting, 1)
	const span = 500 * time.Millisecond
	before, begin := proxy.Bursts(), time.Now()
	<-time.After(span)
	sent := proxy.Bursts() - before // and a busy machine may have waited for longer
	require.Positive(t, sent)
	looks := time.Since(begin).Seconds()/0.02 + 1
	require.LessOrEqual(t, float64(sent), looks*float64(c.Trips(2, 6)), "round trips")
	for _, lock := range holders {
		testbed.Unlock(t, lock)
	}
	require.NoError(t, group.Wait())
}
