package guarantees

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// CombinedLost shows that a lost session is an error to all of a batch, which is not tried again.
func CombinedLost[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	o := newOrders(t, testbed.NewFixture(t, e, c))
	for _, fails := range []bool{false, true} {
		o.during = func(ctx context.Context, tx Tx, in []int) error {
			if in[0] == 1 {
				o.KillSession(t, tx)
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), txlock.ErrLost) {
					t.Error("the context ended with", context.Cause(ctx))
				}
				if fails {
					return errWork
				}
			}
			return nil
		}
		for _, p := range o.together(t, 1, 2, 3) {
			p.fails(t, txlock.ErrLost)
		}
		require.Equal(t, [][]int{{0}, {1, 2, 3}}, o.worked())
		require.Equal(t, []int{0}, o.committed(t))
		o.AsAdmin(t, "DELETE FROM "+o.table)
	}
}

// CombinedNested shows that an order joins the Do in whose work it is placed, and no Lock.
func CombinedNested[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	o := newOrders(t, testbed.NewFixture(t, e, c))
	m := o.Locks.Mutex(o.Key("outer"))
	o.during = func(_ context.Context, _ Tx, in []int) error {
		if in[0] == 3 {
			return errWork
		}
		return nil
	}
	o.judge = func(in int) error {
		if in == 4 {
			return errors.New("four")
		}
		return nil
	}
	ended := background
	require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		ended = ctx
		require.NoError(t, testbed.ErrorOf(o.Do(txlock.Apart(ctx), 1)))
		value := must.Get(o.Do(ctx, 2))(t)
		require.Equal(t, 4, value)
		require.Equal(t, []int{1}, o.committed(t), "the outer Do will commit the other")
		_, err := o.Do(ctx, 3)
		require.Equal(t, errWork, err)
		require.EqualError(t, testbed.ErrorOf(o.Do(ctx, 4)), "four")
		return nil
	}))
	require.Equal(t, []int{1, 2}, o.committed(t))
	require.Equal(t, errWork, m.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, testbed.ErrorOf(o.Do(ctx, 6)))
		return errWork
	}))
	require.Equal(t, []int{1, 2}, o.committed(t))
	require.ErrorIs(t, testbed.ErrorOf(o.Do(ended, 7)), txlock.ErrNotAcquired)

	lock := testbed.Lock(t, m)
	o.worked()
	require.ErrorIs(t, testbed.ErrorOf(o.Do(lock.Context(), 8)), txlock.ErrInsideLock)
	require.Empty(t, o.worked())
	value := must.Get(o.Do(txlock.Apart(lock.Context()), 8))(t)
	require.Equal(t, 16, value)
	testbed.Unlock(t, lock)
	type callers struct{}
	o.during = func(ctx context.Context, _ Tx, _ []int) error {
		require.Nil(t, ctx.Value(callers{}), "in a batch: the session has ended, and the context has outlived it")
		return nil
	}
	value = must.Get(o.Do(context.WithValue(context.WithoutCancel(lock.Context()), callers{}, true), 9))(t)
	require.Equal(t, 18, value)
	require.Equal(t, []int{1, 2, 8, 9}, o.committed(t))
}

// CombinedTraced shows that a tracer is told of each batch once, and of its parts.
func CombinedTraced[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, other, s := traced(t, e, c)
	o := newOrders(t, f)
	o.during = func(ctx context.Context, _ Tx, in []int) error {
		if ctx.Value(storyKey{}) == nil {
			t.Error("the work does not inherit the tracer's values")
		}
		if slices.Contains(in, 2) {
			return errWork
		}
		return nil
	}
	all := o.together(t, 1, 2)
	all[0].is(t, 2)
	all[1].fails(t, errWork)
	require.Equal(t, "Combine", s.asked(t).Name)
	told := s.take(t, "1 asked by Combine", "1 answered", "1 ended", // order 0
		"2 asked by Combine", "2 answered", "2 ended: error",
		"3 asked by Combine", "3 answered", "3 ended", "4 asked by Combine", "4 answered", "4 ended: error")
	require.Equal(t, errWork, told[5])

	lock := testbed.Lock(t, other.Locks.Mutex(o.key))
	leaves := o.place(t, 3)
	o.Waiters(t, 1)
	leaves.cancel()
	leaves.left(t)
	require.ErrorIs(t, s.take(t, "1 asked by Combine", "1 answered: error")[1], context.Canceled)
	testbed.Unlock(t, lock)
}

// CombinedWaits shows that any order may leave a batch that waits for its lock, and that the others
// keep their place.
func CombinedWaits[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	o := newOrders(t, testbed.NewFixture(t, e, c))
	other := testbed.NewFixture(t, e, c)
	begun, goOn := o.stopped()
	lock := testbed.Lock(t, other.Locks.Mutex(o.key))
	alone := o.place(t, 1)
	o.Waiters(t, 1)
	alone.cancel()
	alone.left(t)
	o.Waiters(t, 0)

	alone = o.place(t, 2)
	o.asks(t, 2)
	batch := []*placed{o.place(t, 3), o.place(t, 4), o.place(t, 5)}
	alone.cancel()
	alone.left(t)
	o.asks(t, 3, 4, 5)
	o.Waiters(t, 1)
	rival := testbed.LockLater(other.Locks.Mutex(o.key))
	other.Waiters(t, 1)
	for _, i := range []int{0, 2} { // the first leads
		batch[i].cancel()
		batch[i].left(t)
	}
	testbed.Unlock(t, lock)
	require.Equal(t, []int{4}, testbed.Receive(t, begun))
	require.Empty(t, rival)
	goOn <- nil
	batch[1].is(t, 8)
	require.NoError(t, testbed.Receive(t, rival))
	require.Equal(t, []int{4}, o.committed(t))
}

// CombinedLeaving shows that an order leaves when its context ends before the work has begun, and
// not after.
func CombinedLeaving[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	o := newOrders(t, testbed.NewFixture(t, e, c))
	begun, goOn := o.stopped()

	// From the queue, and not from the work.
	working := o.place(t, 1)
	testbed.Receive(t, begun)
	queued, stays, beside := o.place(t, 2), o.place(t, 3), o.place(t, 16)
	queued.cancel()
	queued.left(t)
	working.cancel()
	goOn <- nil
	working.is(t, 2)
	require.Equal(t, []int{3, 16}, testbed.Receive(t, begun))
	beside.cancel()
	goOn <- nil
	stays.is(t, 6)
	beside.is(t, 32)

	// Many at once, from everywhere in the queue.
	working = o.place(t, 4)
	testbed.Receive(t, begun)
	var many []*placed
	for number := 5; number < 15; number++ {
		many = append(many, o.place(t, number))
	}
	for _, i := range []int{0, 9, 4, 3, 5, 6, 1, 8} {
		many[i].cancel()
		many[i].left(t)
	}
	goOn <- nil
	working.is(t, 8)
	require.Equal(t, []int{7, 12}, testbed.Receive(t, begun))
	goOn <- nil
	many[2].is(t, 14)
	many[7].is(t, 24)

	// Of a context that has ended, nothing is queued.
	ended, cancel := context.WithCancel(background)
	cancel()
	testbed.ErrorIs(t, testbed.ErrorOf(o.Do(ended, 99)), txlock.ErrNotAcquired, context.Canceled)
	require.Equal(t, []int{1, 3, 4, 7, 12, 16}, o.committed(t))
}
