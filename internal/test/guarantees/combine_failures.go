package guarantees

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// together has orders done in one batch, behind order 0, and returns their calls.
func (o *orders[Tx]) together(t *testing.T, in ...int) (all []*placed) {
	t.Helper()
	during := o.during
	begun, goOn := o.stopped()
	first := o.place(t, 0)
	testbed.Receive(t, begun)
	for _, number := range in {
		all = append(all, o.place(t, number))
	}
	o.during = during
	goOn <- nil
	first.is(t, 0)
	return all
}

// lockRows has a batch lock the rows of its orders, of which one order's is another.
func (o *orders[Tx]) lockRows(table string, order int, other any) {
	o.Combined = txlock.Combine(func(in []int) *txlock.Mutex[Tx] {
		values := make([]any, len(in))
		for i, number := range in {
			if values[i] = number; number == order {
				values[i] = other
			}
		}
		return o.Locks.Rows(table, "id", values...)
	}, o.work)
}

// CombinedCulprit shows that an order that makes its batch fail takes no other order with it.
func CombinedCulprit[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	rows := testbed.NewFixture(t, e, c).MakeTable(t, "id int primary key")
	testbed.NewFixture(t, e, c).AsAdmin(t, "INSERT INTO "+rows+" VALUES (0), (1), (2), (3), (5), (6), (7)")
	ways := map[string]func(o *orders[Tx]) error{
		"an error of work": func(o *orders[Tx]) error {
			o.during = func(_ context.Context, _ Tx, in []int) error {
				if slices.Contains(in, 4) {
					return errWork
				}
				return nil
			}
			return errWork
		},
		"a failed statement": func(o *orders[Tx]) error {
			o.AsAdmin(t, "INSERT INTO "+o.table+" VALUES (4)")
			return nil
		},
		"a row that does not exist": func(o *orders[Tx]) error {
			o.lockRows(rows, 4, 4)
			return txlock.ErrNoRow
		},
		"a value that is no text": func(o *orders[Tx]) error {
			o.lockRows(rows, 4, "\xff")
			return nil
		},
		"an empty key": func(o *orders[Tx]) error {
			o.Combined = txlock.Combine(func(in []int) *txlock.Mutex[Tx] {
				if slices.Contains(in, 4) {
					return o.Locks.Mutex(o.key, "")
				}
				return o.Locks.Mutex(o.key)
			}, o.work)
			return nil
		},
	}
	if e.Postgres {
		ways["a value that the column refuses"] = func(o *orders[Tx]) error {
			o.lockRows(rows, 4, "abc")
			return nil
		}
		ways["a constraint at COMMIT"] = func(o *orders[Tx]) error {
			o.AsAdmin(t, "ALTER TABLE "+o.table+" ADD FOREIGN KEY (id) REFERENCES "+rows+
				" DEFERRABLE INITIALLY DEFERRED")
			return nil
		}
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			o := newOrders(t, testbed.NewFixture(t, e, c))
			reason := way(o)
			for i, p := range o.together(t, 1, 2, 3, 4, 5, 6, 7) {
				if i+1 == 4 {
					p.fails(t, reason)
				} else {
					p.is(t, 2*(i+1))
				}
			}
			o.AsAdmin(t, "DELETE FROM "+o.table+" WHERE id = 4") // there before, of a failed statement
			require.Equal(t, []int{0, 1, 2, 3, 5, 6, 7}, o.committed(t))
			o.Free(t, o.key)
		})
	}
}

// CombinedCulpritLeaves shows that an order does not get the error of another one that has left
// their batch.
func CombinedCulpritLeaves[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	rows := testbed.NewFixture(t, e, c).MakeTable(t, "id int primary key")
	other := testbed.NewFixture(t, e, c)
	other.AsAdmin(t, "INSERT INTO "+rows+" VALUES (0), (3)")
	o := newOrders(t, testbed.NewFixture(t, e, c))
	o.lockRows(rows, 4, 4)
	lock := testbed.Lock(t, other.Locks.Rows(rows, "id", 3))
	all := o.together(t, 4, 3)
	o.Waiters(t, 1)
	all[0].cancel()
	all[0].left(t)
	testbed.Unlock(t, lock)
	all[1].is(t, 6)
	require.Equal(t, []int{0, 3}, o.committed(t))
}

// CombinedWaitFails shows that a wait that fails for all of a batch is not tried again.
func CombinedWaitFails[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	rows := testbed.NewFixture(t, e, c).MakeTable(t, "id int primary key")
	other := testbed.NewFixture(t, e, c)
	other.AsAdmin(t, "INSERT INTO "+rows+" VALUES (0), (1), (2), (3)")
	lock := testbed.Lock(t, other.Locks.Rows(rows, "id", 2))
	for _, killed := range []bool{false, true} {
		o := newOrders(t, testbed.NewFixture(t, e, c))
		asked := 0
		o.Combined = txlock.Combine(func(in []int) *txlock.Mutex[Tx] {
			asked++
			if in[0] == 0 {
				return o.Locks.Rows(rows, "id", 0)
			}
			m := o.Locks.Rows(rows, "id", 1, 2, 3)
			if !killed {
				m = m.Within(50 * time.Millisecond)
			}
			return m
		}, o.work)
		all := o.together(t, 1, 2, 3)
		if killed {
			o.Waiters(t, 1)
			o.KillSessions(t)
		}
		for _, p := range all {
			if err := p.fails(t, nil); !killed {
				testbed.ErrorIs(t, err, txlock.ErrNotAcquired, context.DeadlineExceeded)
			}
		}
		require.Equal(t, 2, asked)
	}
	testbed.Unlock(t, lock)
}

// CombinedHalves shows in which parts a batch that failed is tried again, and that its orders may
// leave between the tries.
func CombinedHalves[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	o := newOrders(t, testbed.NewFixture(t, e, c))
	begun, goOn := o.stopped()
	zero := o.place(t, 0)
	testbed.Receive(t, begun)
	var all []*placed
	for number := 1; number <= 7; number++ {
		all = append(all, o.place(t, number))
	}
	goOn <- nil
	zero.is(t, 0)
	require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7}, testbed.Receive(t, begun))
	late := o.place(t, 8)
	all[5].cancel() // in flight
	goOn <- errWork
	all[5].left(t) // its batch was rolled back
	require.Equal(t, []int{1, 2, 3, 4}, testbed.Receive(t, begun))
	goOn <- errWork
	require.Equal(t, []int{1, 2}, testbed.Receive(t, begun))
	all[3].cancel()
	all[3].left(t)
	goOn <- nil
	all[0].is(t, 2)
	all[1].is(t, 4)
	require.Equal(t, []int{3}, testbed.Receive(t, begun))
	goOn <- errWork
	all[2].fails(t, errWork)
	require.Equal(t, []int{5, 7}, testbed.Receive(t, begun))
	goOn <- nil
	all[4].is(t, 10)
	all[6].is(t, 14)
	require.Equal(t, []int{8}, testbed.Receive(t, begun))
	goOn <- nil
	late.is(t, 16)
	require.Equal(t, []int{0, 1, 2, 5, 7, 8}, o.committed(t))
}

// CombinedRefuses shows that results of another number than orders commit nothing, and that bad
// input does nothing.
func CombinedRefuses[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	o := newOrders(t, f)
	for _, wrong := range []int{-1, 1} {
		o.Combined = txlock.Combine(o.lock, func(ctx context.Context, tx Tx, in []int) ([]txlock.Result[int], error) {
			results, err := o.work(ctx, tx, in)
			if !slices.Equal(in, []int{0}) {
				results = make([]txlock.Result[int], len(in)+wrong)
			}
			return results, err
		})
		for _, p := range o.together(t, 1, 2, 3) {
			ended := testbed.Receive(t, p.ended)
			require.ErrorContains(t, ended.err, fmt.Sprintf("%d results for 3 orders", 3+wrong))
			require.Zero(t, ended.value)
		}
		require.Equal(t, [][]int{{0}, {1, 2, 3}}, o.worked(), "another try would not help")
		require.Equal(t, []int{0}, o.committed(t))
		f.AsAdmin(t, "DELETE FROM "+o.table)
		require.ErrorContains(t, f.Locks.Mutex(o.key).Do(background, func(ctx context.Context, _ Tx) error {
			return testbed.ErrorOf(o.Do(ctx, 4))
		}), fmt.Sprintf("%d results for 1 orders", 1+wrong))
		o.worked()
		require.Empty(t, o.committed(t))
	}
	for _, bad := range []struct {
		text string
		c    *txlock.Combined[Tx, int, int]
	}{
		{"nil lock", txlock.Combine[Tx](nil, o.work)},
		{"nil work", txlock.Combine[Tx, int, int](o.lock, nil)},
		{"nil work", txlock.Combine[Tx, int, int](o.lock, nil).AtMost(0)},
		{"AtMost(0)", txlock.Combine(o.lock, o.work).AtMost(0)},
		{"AtMost(-1)", txlock.Combine(o.lock, o.work).AtMost(-1)},
		{"nil Mutex", txlock.Combine(func([]int) *txlock.Mutex[Tx] { return nil }, o.work)},
		{"no key given", txlock.Combine(func([]int) *txlock.Mutex[Tx] { return f.Locks.Mutex() }, o.work)},
		{
			"Within(-1ns)",
			txlock.Combine(func([]int) *txlock.Mutex[Tx] { return f.Locks.Mutex(o.key).Within(-1) }, o.work),
		},
	} {
		value, err := bad.c.Do(background, 1)
		require.ErrorContains(t, err, "txlock: Combine")
		require.ErrorContains(t, err, bad.text)
		require.Zero(t, value)
	}
	require.Empty(t, o.worked())
}
