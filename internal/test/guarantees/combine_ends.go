package guarantees

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
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

// CombinedClosing shows that Close ends the batch that is worked on, and refuses the next.
func CombinedClosing[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	o := newOrders(t, testbed.NewFixture(t, e, c))
	begun := make(chan struct{})
	o.during = func(ctx context.Context, _ Tx, _ []int) error {
		close(begun)
		<-ctx.Done()
		return nil
	}
	working := o.place(t, 1)
	testbed.Receive(t, begun)
	queued := []*placed{o.place(t, 2), o.place(t, 3)}
	require.NoError(t, o.Locks.Close())
	require.ErrorContains(t, working.fails(t, txlock.ErrLost), "closed")
	for _, p := range queued {
		require.ErrorContains(t, testbed.Receive(t, p.ended).err, "closed")
	}
	_, err := o.Do(background, 4)
	require.ErrorContains(t, err, "closed")
	require.Equal(t, [][]int{{1}}, o.worked())
	require.Empty(t, o.committed(t))
}

// CombinedClosingWait shows that Close ends the wait of a batch at the server.
func CombinedClosingWait[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	o := newOrders(t, testbed.NewFixture(t, e, c))
	lock, err := testbed.NewFixture(t, e, c).Locks.Mutex(o.key).Lock(background)
	require.NoError(t, err)
	all := []*placed{o.place(t, 1)}
	o.Waiters(t, 1)
	all = append(all, o.place(t, 2), o.place(t, 3))
	require.NoError(t, o.Locks.Close())
	for _, p := range all {
		require.ErrorContains(t, p.fails(t, nil), "closed")
	}
	o.Waiters(t, 0)
	require.Empty(t, o.worked())
	require.NoError(t, lock.Unlock(background))
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
		_, err := o.Do(txlock.Apart(ctx), 1)
		require.NoError(t, err)
		value, err := o.Do(ctx, 2)
		require.NoError(t, err)
		require.Equal(t, 4, value)
		require.Equal(t, []int{1}, o.committed(t), "the outer Do will commit the other")
		_, err = o.Do(ctx, 3)
		require.Equal(t, errWork, err)
		_, err = o.Do(ctx, 4)
		require.EqualError(t, err, "four")
		return nil
	}))
	require.Equal(t, []int{1, 2}, o.committed(t))
	require.Equal(t, errWork, m.Do(background, func(ctx context.Context, tx Tx) error {
		_, err := o.Do(ctx, 6)
		require.NoError(t, err)
		return errWork
	}))
	require.Equal(t, []int{1, 2}, o.committed(t))
	_, err := o.Do(ended, 7)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)

	lock, err := m.Lock(background)
	require.NoError(t, err)
	o.worked()
	_, err = o.Do(lock.Context(), 8)
	require.ErrorIs(t, err, txlock.ErrInsideLock)
	require.Empty(t, o.worked())
	value, err := o.Do(txlock.Apart(lock.Context()), 8)
	require.NoError(t, err)
	require.Equal(t, 16, value)
	require.NoError(t, lock.Unlock(background))
	type callers struct{}
	o.during = func(ctx context.Context, _ Tx, _ []int) error {
		require.Nil(t, ctx.Value(callers{}), "in a batch: the session has ended, and the context has outlived it")
		return nil
	}
	value, err = o.Do(context.WithValue(context.WithoutCancel(lock.Context()), callers{}, true), 9)
	require.NoError(t, err)
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

	lock, err := other.Locks.Mutex(o.key).Lock(background)
	require.NoError(t, err)
	leaves := o.place(t, 3)
	o.Waiters(t, 1)
	leaves.cancel()
	leaves.left(t)
	require.ErrorIs(t, s.take(t, "1 asked by Combine", "1 answered: error")[1], context.Canceled)
	require.NoError(t, lock.Unlock(background))
}

// CombinedLeavesFailure: the contexts of many orders end while their batch, which has failed, is
// put back into the queue. They leave all the same, and do not wait for others.
func CombinedLeavesFailure[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const orders = 100
	o := newOrders(t, testbed.NewFixture(t, e, c))
	begun, goOn := o.stopped()
	for range 3 {
		first := o.place(t, 0)
		testbed.Receive(t, begun)
		var all []*placed
		for number := range orders {
			all = append(all, o.place(t, number+1))
		}
		goOn <- nil
		first.is(t, 0)
		require.Len(t, testbed.Receive(t, begun), orders)
		cancel := func() { // when all others have been looked at
			for _, p := range all[1 : orders-1] {
				p.cancel()
			}
		}
		all[orders-1].ctx.looked.Store(&cancel)
		goOn <- errWork
		for _, p := range all[orders/2 : orders-1] { // while the first half is under way
			p.left(t)
		}
		batch := testbed.Receive(t, begun)
		require.Contains(t, batch, 1)
		goOn <- nil
		all[0].is(t, 2)
		if !slices.Contains(batch, orders) { // it has not moved up
			require.Equal(t, []int{orders}, testbed.Receive(t, begun))
			goOn <- nil
		}
		all[orders-1].is(t, 2*orders)
		o.AsAdmin(t, "DELETE FROM "+o.table)
	}
}
