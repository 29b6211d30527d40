package guarantees

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/wire"
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
	stays, err := m.Lock(background)
	require.NoError(t, err)
	first, err := m.Lock(background)
	require.NoError(t, err)
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
	require.NoError(t, first.Unlock(background))
	require.NoError(t, group.Wait())
	require.Len(t, served, processes+waiters)
	for i, who := range served {
		require.Equal(t, i, who, "served: %v", served)
	}
	require.NoError(t, stays.Unlock(background))
}

// SemaphoreKilled shows that somebody's cancels, which hit looks and probes, cost a second at most,
// and spoil nothing.
func SemaphoreKilled[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	endsPromptly(t, "a time in which nobody had a permit", func() time.Duration { return longestStandstill(t, f) })
	f.Transactions(t, 0)
}

// longestStandstill is how long nobody got a permit while statements are cancelled.
func longestStandstill[Tx any](t *testing.T, f *testbed.Fixture[Tx]) time.Duration {
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
		for ticks := time.NewTicker(30 * time.Millisecond); over.Err() == nil; <-ticks.C {
			f.CancelStatements(t)
		}
		return nil
	})
	done := make(chan error, 1)
	go func() { done <- group.Wait(); close(granted) }()
	last, longest := time.Now(), time.Duration(0)
	for at := range granted {
		longest, last = max(longest, at.Sub(last)), at
	}
	require.NoError(t, <-done)
	deadline, _ := over.Deadline()
	return max(longest, deadline.Sub(last))
}

// SemaphoreVerbs shows what each verb does with a permit, and who has which.
func SemaphoreVerbs[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	key, rows := f.Key("api"), f.MakeTable(t, "id int")
	work := func(context.Context, Tx) error { return nil }
	two, five := f.Locks.Semaphore(key, 2), f.Locks.Semaphore(key, 5)
	take := func(m *txlock.Mutex[Tx], ctx context.Context, permit int) *txlock.Lock {
		lock, err := m.TryLock(ctx)
		require.NoError(t, err)
		require.Equal(t, permit, lock.Permit())
		return lock
	}

	// Clients that disagree on n keep to their own.
	var held []*txlock.Lock
	for permit := range 5 {
		held = append(held, take(five, background, permit))
	}
	require.ErrorIs(t, two.TryDo(background, work), txlock.ErrNotAcquired)
	require.NoError(t, held[3].Unlock(background))
	require.ErrorIs(t, two.TryDo(background, work), txlock.ErrNotAcquired)
	take(five, background, 3)
	require.NoError(t, held[1].Unlock(background))

	// There is none for a transaction of the caller's, which goes on.
	tx := f.Guest(t)
	require.NoError(t, f.Exec(background, tx, "INSERT INTO "+rows+" VALUES (1)"))
	require.ErrorContains(t, two.LockTx(background, tx), "use Do")
	require.ErrorContains(t, two.TryLockTx(background, tx), "use Do")
	require.NoError(t, f.End(background, tx, true))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+rows))
	_, err := two.TryExec(background, txlock.Statement{SQL: "DELETE FROM " + rows})
	require.ErrorContains(t, err, "has no Exec")

	// A session that holds something takes none besides, and goes on.
	outer := take(two, background, 1)
	_, err = two.TryLock(outer.Context())
	require.ErrorContains(t, err, "Apart")
	require.NotErrorIs(t, err, txlock.ErrNotAcquired)
	inner, err := f.Locks.Mutex(f.Key("inner")).Lock(outer.Context())
	require.NoError(t, err)
	require.Zero(t, inner.Permit())
	require.NoError(t, inner.Unlock(background))
	require.ErrorIs(t, two.Do(outer.Context(), work), txlock.ErrInsideLock)
	require.NoError(t, outer.Unlock(background))
	require.NoError(t, two.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, held[0].Unlock(background)) // permit 0 is free
		require.ErrorContains(t, two.TryDo(ctx, work), "Apart")
		require.NoError(t, take(two, txlock.Apart(ctx), 0).Unlock(background))
		return f.Exec(ctx, tx, "INSERT INTO "+rows+" VALUES (3)")
	}))
	require.Equal(t, 2, f.Total(t, "SELECT COUNT(*) FROM "+rows))

	for _, bad := range []*txlock.Mutex[Tx]{
		f.Locks.Semaphore("", 1), f.Locks.Semaphore(key, 0), f.Locks.Semaphore(key, -1), f.Locks.Semaphore(key, 1001),
	} {
		_, err := bad.TryLock(background)
		require.Error(t, err)
		require.NotErrorIs(t, err, txlock.ErrNotAcquired)
	}
	many, err := f.Locks.Semaphore(f.Key("many"), 1000).TryLock(background)
	require.NoError(t, err)
	require.NoError(t, many.Unlock(background))
}

// SemaphoreDeath shows that the death of a holder, or of the session that looks for a permit, lets
// the next one go on.
func SemaphoreDeath[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	holder, head, next := testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)
	key := next.Key("api")
	lock, err := holder.Locks.Semaphore(key, 1).Lock(background)
	require.NoError(t, err)
	died := make(chan error, 1)
	go func() {
		_, err := head.Locks.Semaphore(key, 1).Lock(background)
		died <- err
	}()
	headWaits(t, next, key, 0)
	granted := make(chan *txlock.Lock, 1)
	go func() {
		lock, err := next.Locks.Semaphore(key, 1).Lock(background)
		if err != nil {
			t.Error(err)
		}
		granted <- lock
	}()
	headWaits(t, next, key, 1)
	head.KillSessions(t)
	require.Error(t, testbed.Receive(t, died))
	headWaits(t, next, key, 0)
	holder.KillSessions(t)
	require.NoError(t, testbed.Receive(t, granted).Unlock(background))
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
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
		lock, err := f.Locks.Semaphore(key, n).TryLock(background)
		require.NoError(t, err)
		defer lock.Unlock(background)
	}
}

// SemaphoreCosts shows that many waiters of two processes take one connection each, and send little
// between them, and that a pool that is full of holders and waiters goes on.
func SemaphoreCosts[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const waiters, n = 32, 2
	proxy, err := wire.Listen(e.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	here, waiting := crowded(t, e, c, n+1, proxy.Addr(), txlock.WithLease(time.Hour)) // no heartbeat
	there, more := crowded(t, e, c, n+1, proxy.Addr(), txlock.WithLease(time.Hour))
	key := here.Key("api")
	var holders []*txlock.Lock
	for range n {
		lock, err := here.Locks.Semaphore(key, n).Lock(background)
		require.NoError(t, err)
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
		require.NoError(t, lock.Unlock(background))
	}
	require.NoError(t, group.Wait())
}

// SemaphoreInspected shows that Inspect tells who holds the permits of a semaphore and who waits,
// and that Break ends the one that is named.
func SemaphoreInspected[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, there := testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)
	key := f.Key("api")
	require.Empty(t, semaphoresIn(f.Look(t, key)))
	m := f.Locks.Semaphore(key, 2)
	stays, err := m.Lock(background)
	require.NoError(t, err)
	ends, err := m.Lock(background)
	require.NoError(t, err)
	head := make(chan *txlock.Lock, 1)
	go func() {
		lock, err := m.Lock(background)
		if err != nil {
			t.Error(err)
		}
		head <- lock
	}()
	headWaits(t, f, key, 0)
	served := make(chan error, 1)
	go func() {
		next, err := there.Locks.Semaphore(key, 2).Lock(background)
		if err == nil {
			err = next.Unlock(background)
		}
		served <- err
	}()
	headWaits(t, f, key, 1)

	shown := semaphoresIn(f.Look(t, key))
	require.Len(t, shown, 1)
	h := shown[0]
	require.Equal(t, key, h.Key)
	require.Nil(t, h.Holder)
	require.Len(t, h.Waiters, 2)
	require.Contains(t, h.Waiters[1].Application+h.Waiters[1].Database, there.Label, "the head comes first")
	require.Len(t, h.Permits, 2)
	for permit, holder := range h.Permits {
		require.Equal(t, permit, holder.Permit)
		require.NotEmpty(t, holder.ID)
		require.NotEqual(t, holder.ID, h.Waiters[0].ID)
	}
	require.ErrorContains(t, f.Locks.Break(background, h), "2 sessions hold it together")
	h.Holder = &h.Permits[ends.Permit()]
	require.NoError(t, f.Locks.Break(background, h))
	require.ErrorIs(t, ends.Unlock(background), txlock.ErrLost)
	first := testbed.Receive(t, head)
	require.Equal(t, ends.Permit(), first.Permit())
	require.NoError(t, first.Unlock(background))
	require.NoError(t, testbed.Receive(t, served))
	require.ErrorIs(t, f.Locks.Break(background, h), txlock.ErrNotHeld)
	require.NoError(t, stays.Unlock(background))
}

func semaphoresIn(holdings []txlock.Holding) (semaphores []txlock.Holding) {
	for _, h := range holdings {
		if h.Column == "semaphore" {
			semaphores = append(semaphores, h)
		}
	}
	return semaphores
}
