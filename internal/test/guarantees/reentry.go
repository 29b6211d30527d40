package guarantees

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

type contextKey string

// Reentry shows that reentry follows the context, counts, and ends with the last handle.
func Reentry[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	a, b := f.Key("a"), f.Key("b")
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}} {
		outer := testbed.LockIn(t, context.WithValue(background, contextKey("who"), "me"), f.Locks.Mutex(a))
		require.Equal(t, "me", outer.Context().Value(contextKey("who")))
		again := testbed.LockIn(t, outer.Context(), f.Locks.Mutex(a))
		tried := testbed.TryLockIn(t, again.Context(), f.Locks.Mutex(a))
		other := testbed.LockIn(t, tried.Context(), f.Locks.Mutex(b, a))
		_, err := f.Locks.Mutex(a).TryLock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired, "a sibling without the context is another owner")
		f.Transactions(t, 1) // one session for all of them

		handles := []*txlock.Lock{outer, again, tried, other}
		for i, which := range order {
			f.Taken(t, a)
			f.Taken(t, b)
			require.NoError(t, handles[which].Context().Err())
			testbed.Unlock(t, handles[which])
			require.ErrorIs(t, handles[which].Unlock(background), txlock.ErrNotHeld)
			require.Error(t, handles[which].Context().Err())
			require.NotErrorIs(t, context.Cause(handles[which].Context()), txlock.ErrLost)
			if i == len(order)-1 {
				f.Free(t, a, b)
			}
		}
	}
	// Two Lockers are two owners, also on one database.
	second := testbed.NewFixture(t, e, c)
	lock := testbed.Lock(t, f.Locks.Mutex(a))
	require.ErrorIs(t, testbed.ErrorOf(second.Locks.Mutex(a).TryLock(lock.Context())), txlock.ErrNotAcquired)
	testbed.Unlock(t, lock)
	// A context that outlived its lock owns nothing.
	ended := context.WithoutCancel(lock.Context())
	fresh := testbed.LockIn(t, ended, f.Locks.Mutex(a))
	f.Taken(t, a)
	testbed.Unlock(t, fresh)
	// A handle that the work leaves open is released with the Do.
	var left *txlock.Lock
	require.NoError(t, f.Locks.Mutex(a).Do(background, func(ctx context.Context, _ Tx) (err error) {
		left, err = f.Locks.Mutex(b).Lock(ctx)
		return err
	}))
	f.Free(t, a, b)
	require.ErrorIs(t, context.Cause(left.Context()), txlock.ErrNotHeld)
	require.ErrorIs(t, left.Unlock(background), txlock.ErrNotHeld)
}

// OneConnection shows that nested locks need one connection.
func OneConnection[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 1, "")
	ctx, cancel := context.WithTimeout(background, 10*time.Second)
	defer cancel()
	outer := testbed.LockIn(t, ctx, f.Locks.Mutex(f.Key("1")))
	inner := testbed.LockIn(t, context.WithoutCancel(outer.Context()), f.Locks.Mutex(f.Key("2")))
	require.NoError(t, outer.Unlock(ctx))
	require.NoError(t, inner.Unlock(ctx))
	require.NoError(t, f.Locks.Mutex(f.Key("3"), f.Key("4")).Do(ctx, func(ctx context.Context, _ Tx) error {
		inWork := testbed.LockIn(t, ctx, f.Locks.Mutex(f.Key("6")))
		require.NoError(t, f.Locks.Mutex(f.Key("5")).TryDo(inWork.Context(), idle[Tx]))
		return inWork.Unlock(ctx)
	}))
}

// ForeignLoss: work may return the ErrLost of another Locker. Its own session is not lost by that.
func ForeignLoss[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	m := f.Locks.Mutex(f.Key("m"))
	loss := fmt.Errorf("of another: %w", txlock.ErrLost)
	lose := func(context.Context, Tx) error { return loss }
	require.NoError(t, m.Do(background, func(ctx context.Context, _ Tx) error {
		require.Equal(t, loss, m.Do(ctx, lose))
		require.NoError(t, ctx.Err())
		return m.Do(ctx, idle[Tx])
	}))
	require.Equal(t, loss, m.Do(background, lose))
	f.Free(t, f.Key("m"))
}

// NestedWaitEnds shows that a nested wait that ends leaves the outer lock held.
func NestedWaitEnds[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key")
	holder := testbed.Lock(t, f.Locks.Mutex(f.Key("held")))
	held := f.Locks.Mutex(f.Key("held"))
	_, err := held.Within(30 * time.Millisecond).Lock(background)
	require.ErrorContains(t, err, "another call of this Locker holds it")
	require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, tx Tx) error {
		require.ErrorIs(t, testbed.ErrorOf(held.TryLock(ctx)), txlock.ErrNotAcquired)
		require.ErrorIs(t, testbed.ErrorOf(held.Within(30*time.Millisecond).Lock(ctx)), context.DeadlineExceeded)
		require.ErrorIs(t, held.Within(30*time.Millisecond).Do(ctx, idle[Tx]), txlock.ErrNotAcquired)
		waiting, cancel := context.WithCancel(ctx)
		failed := testbed.Go(func() error { _, err := held.Lock(waiting); return err })
		f.Waiters(t, 1)
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		require.ErrorIs(t, testbed.ErrorOf(f.Locks.Rows(table, "id", 1).Lock(ctx)), txlock.ErrNoRow)
		f.Taken(t, f.Key("outer"))
		return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)")
	}))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
	testbed.Unlock(t, holder)
	f.Free(t, f.Key("held"), f.Key("outer"))
}

// NestedDeadlock shows that a nested deadlock is an error and never a silent loss.
func NestedDeadlock[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	opposite(t, f, func() {})
	f.Free(t, f.Key("a"), f.Key("b"))
}

// opposite locks two keys in opposite orders, in two sessions that each hold one of them when
// between is called.
func opposite[Tx any](t *testing.T, f *testbed.Fixture[Tx], between func()) {
	t.Helper()
	a, b := f.Locks.Mutex(f.Key("a")), f.Locks.Mutex(f.Key("b"))
	errs := make(chan error, 2)
	locked := make(chan struct{}, 2)
	bothLocked := make(chan struct{})
	for _, order := range [][]*txlock.Mutex[Tx]{{a, b}, {b, a}} {
		go func() {
			errs <- order[0].Do(background, func(ctx context.Context, _ Tx) error {
				locked <- struct{}{}
				<-bothLocked
				return testbed.Cycle(ctx, order[1])
			})
		}()
	}
	for range 2 {
		select {
		case <-locked:
		case err := <-errs:
			close(bothLocked)
			require.FailNow(t, "a Do did not come to its work", err)
		}
	}
	between()
	close(bothLocked)
	first, second := testbed.Receive(t, errs), testbed.Receive(t, errs)
	if first == nil {
		first, second = second, first
	}
	require.ErrorIs(t, first, txlock.ErrDeadlock)
	require.NoError(t, second)
}

// SharedContext shows that goroutines that share the context of a Lock take turns, and that in the
// work of a Do the second of two calls side by side is an error at once, which costs the first
// nothing.
func SharedContext[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key")
	outer := testbed.Lock(t, f.Locks.Mutex(f.Key("shared")))
	contend(t, 8, 10, func(caller int) error {
		return testbed.Cycle(outer.Context(), f.Locks.Mutex(f.Key(string(rune('a'+caller)))))
	})
	f.Taken(t, f.Key("c"))
	testbed.Unlock(t, outer)
	f.Free(t, f.Key("shared"), f.Key("c"))

	holder := testbed.Lock(t, f.Locks.Mutex(f.Key("held")))
	require.NoError(t, f.Locks.Mutex(f.Key("shared")).Do(background, func(ctx context.Context, tx Tx) error {
		first := testbed.Go(func() error { _, err := f.Locks.Mutex(f.Key("held")).Lock(ctx); return err })
		f.Waiters(t, 1)
		start := time.Now()
		_, err := f.Locks.Mutex(f.Key("c")).Lock(ctx)
		require.ErrorContains(t, err, "another call")
		require.NotErrorIs(t, err, txlock.ErrNotAcquired, "a mistake, of which no try may say that another has it")
		require.ErrorContains(t, f.Locks.Mutex(f.Key("c")).Do(ctx, idle[Tx]), "another call")
		require.Less(t, time.Since(start), 20*time.Second, "the first waits for as long as the test")
		testbed.Unlock(t, holder)
		require.NoError(t, testbed.Receive(t, first))
		return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)")
	}))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
	f.Free(t, f.Key("shared"), f.Key("c"), f.Key("held"))
}
