package guarantees

import (
	"slices"
	"sync"
	"testing"
	"time"

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

// TightLoops times the calls on the client's side. A request is still to be scheduled here, sent,
// and scheduled on the server, so even hand-written SQL shows up to 70 of 1600 neighbours in the
// wrong order of their calls. Hence a neighbour counts as overtaken only when it had waited longer
// than the one before it by half a usual wait. That shows a newcomer that is let in before the
// queue, and not one that reached the queue a little late. With 16 workers half a wait is 2 ms, and
// a shared machine may delay a request for that long: that made 41 of 1600. With the workers here
// it is 4 ms.
//
// A busy machine can only make the order look worse than it is, so the best of a few runs counts.
// Measured on two cores: 0 to 2 of 1600 on an idle machine, 7 to 40 beside eight busy processes. On
// PostgreSQL, rows without the queue lock give 250 of 1600 when idle, 82 to 176 beside the eight.
func TightLoops[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := atServer(t, e, c)
	const workers, rounds, runs = 32, 50, 5
	const tolerated = workers * rounds / 32
	f.Warm(t, workers)
	inversions := workers * rounds
	for run := 0; run < runs && inversions >= tolerated; run++ {
		turns := loop(t, f, f.Key("loop"), workers, rounds)
		inversions = overtakings(turns)
		t.Logf("%d of %d neighbours provably out of order", inversions, len(turns))
	}
	require.Less(t, inversions, tolerated)
}

// turn is one acquisition of a worker.
type turn struct {
	called time.Time
	waited time.Duration
}

// loop lets workers lock and unlock one key, and returns their turns in the order of the grants.
func loop[Tx any](t *testing.T, f *testbed.Fixture[Tx], key string, workers, rounds int) []turn {
	t.Helper()
	m := f.Locks.Mutex(key)
	var mu sync.Mutex
	turns := make([]turn, 0, workers*rounds)
	var group errgroup.Group
	for range workers {
		group.Go(func() error {
			for range rounds {
				called := time.Now()
				lock, err := m.Lock(background)
				if err != nil {
					return err
				}
				mu.Lock()
				turns = append(turns, turn{called, time.Since(called)})
				mu.Unlock()
				if err := lock.Unlock(background); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	return turns
}

func overtakings(turns []turn) (n int) {
	waits := make([]time.Duration, len(turns))
	for i, turn := range turns {
		waits[i] = turn.waited
	}
	slices.Sort(waits)
	usual := waits[len(waits)/2]
	for i := 1; i < len(turns); i++ {
		if turns[i-1].called.Sub(turns[i].called) > usual/2 {
			n++
		}
	}
	return n
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
