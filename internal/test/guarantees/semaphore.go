package guarantees

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
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
	const n, callers, rounds = 3, 16, 6
	here, there := testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)
	var inside permits
	contend(t, callers, rounds, func(i int) error {
		m := []*testbed.Fixture[Tx]{here, there}[i%2].Locks.Semaphore(here.Key("api"), n)
		if i%4 < 2 {
			return m.Do(background, func(context.Context, Tx) error {
				inside.enter()
				defer inside.inside.Add(-1)
				return nil
			})
		}
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
		return lock.Unlock(background)
	})
	require.LessOrEqual(t, inside.most.Load(), int64(n))
	var locks []*txlock.Lock
	for range n { // all are free again
		locks = append(locks, testbed.TryLock(t, here.Locks.Semaphore(here.Key("api"), n)))
	}
	testbed.Misses(t, there.Locks.Semaphore(here.Key("api"), n))
	_, err := here.Locks.Semaphore(here.Key("api"), n).Within(50 * time.Millisecond).Lock(background)
	testbed.ErrorIs(t, err, txlock.ErrNotAcquired, context.DeadlineExceeded)
	testbed.Unlock(t, locks...)
}

// SemaphoreVerbs shows what each verb does with a permit, and who has which.
func SemaphoreVerbs[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	key, rows := f.Key("api"), f.MakeTable(t, "id int")
	two, five := f.Locks.Semaphore(key, 2), f.Locks.Semaphore(key, 5)
	take := func(m *txlock.Mutex[Tx], ctx context.Context, permit int) *txlock.Lock {
		lock := testbed.TryLockIn(t, ctx, m)
		require.Equal(t, permit, lock.Permit())
		return lock
	}

	// Clients that disagree on n keep to their own.
	var held []*txlock.Lock
	for permit := range 5 {
		held = append(held, take(five, background, permit))
	}
	require.ErrorIs(t, two.TryDo(background, idle[Tx]), txlock.ErrNotAcquired)
	testbed.Unlock(t, held[3])
	require.ErrorIs(t, two.TryDo(background, idle[Tx]), txlock.ErrNotAcquired)
	take(five, background, 3)
	testbed.Unlock(t, held[1])

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
	inner := testbed.LockIn(t, outer.Context(), f.Locks.Mutex(f.Key("inner")))
	require.Zero(t, inner.Permit())
	testbed.Unlock(t, inner)
	require.ErrorIs(t, two.Do(outer.Context(), idle[Tx]), txlock.ErrInsideLock)
	testbed.Unlock(t, outer)
	require.NoError(t, two.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, held[0].Unlock(background)) // permit 0 is free
		require.ErrorContains(t, two.TryDo(ctx, idle[Tx]), "Apart")
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
	testbed.Unlock(t, testbed.TryLock(t, f.Locks.Semaphore(f.Key("many"), 1000)))
}

// SemaphoreDeath shows that the death of a holder, or of the session that looks for a permit, lets
// the next one go on.
func SemaphoreDeath[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	holder, head, next := testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)
	key := next.Key("api")
	lock := testbed.Lock(t, holder.Locks.Semaphore(key, 1))
	died := testbed.Go(func() error { _, err := head.Locks.Semaphore(key, 1).Lock(background); return err })
	headWaits(t, next, key, 0)
	granted := testbed.Granted(t, next.Locks.Semaphore(key, 1))
	headWaits(t, next, key, 1)
	head.KillSessions(t)
	require.Error(t, testbed.Receive(t, died))
	headWaits(t, next, key, 0)
	holder.KillSessions(t)
	require.NoError(t, testbed.Receive(t, granted).Unlock(background))
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
}

// SemaphoreInspected shows that Inspect tells who holds the permits of a semaphore and who waits,
// and that Break ends the one that is named.
func SemaphoreInspected[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, there := testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)
	key := f.Key("api")
	require.Empty(t, semaphoresIn(f.Look(t, key)))
	m := f.Locks.Semaphore(key, 2)
	stays := testbed.Lock(t, m)
	ends := testbed.Lock(t, m)
	head := testbed.Granted(t, m)
	headWaits(t, f, key, 0)
	served := testbed.LockLater(there.Locks.Semaphore(key, 2))
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
	testbed.Unlock(t, first)
	require.NoError(t, testbed.Receive(t, served))
	require.ErrorIs(t, f.Locks.Break(background, h), txlock.ErrNotHeld)
	testbed.Unlock(t, stays)
}

func semaphoresIn(holdings []txlock.Holding) (semaphores []txlock.Holding) {
	for _, h := range holdings {
		if h.Column == "semaphore" {
			semaphores = append(semaphores, h)
		}
	}
	return semaphores
}
