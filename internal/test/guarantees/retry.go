package guarantees

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// DeadlockRetried shows that two who meet in a deadlock both commit in the end, each once: by the
// locks of a Do, and by the statements of a Do and an Exec.
func DeadlockRetried[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key, n int")
	insert(t, f, table, 1, 2)
	add := func(id int) string { return fmt.Sprintf("UPDATE %s SET n = n + 1 WHERE id = %d", table, id) }
	both := func() int { return f.Total(t, "SELECT SUM(n * id) FROM "+table) }

	errs := make(chan error, 2)
	var holds sync.WaitGroup
	holds.Add(2)
	for i, keys := range [][]string{{"a", "b"}, {"b", "a"}} {
		go func() {
			hold := sync.OnceFunc(holds.Done)
			errs <- f.Locks.Mutex(f.Key(keys[0])).Retry(5).Do(background, func(ctx context.Context, tx Tx) error {
				hold()
				holds.Wait()
				return f.Locks.Mutex(f.Key(keys[1])).Do(ctx, func(ctx context.Context, tx Tx) error {
					return f.Exec(ctx, tx, add(i+1))
				})
			})
		}()
	}
	require.NoError(t, testbed.Receive(t, errs))
	require.NoError(t, testbed.Receive(t, errs))
	require.Equal(t, 1+2, both())

	var start sync.Once
	executed := make(chan error, 1)
	require.NoError(t, f.Locks.Mutex(f.Key("do")).Retry(5).Do(background, func(ctx context.Context, tx Tx) error {
		if err := f.Exec(ctx, tx, add(1)); err != nil {
			return err
		}
		start.Do(func() {
			go func() {
				_, err := f.Locks.Mutex(f.Key("exec")).Retry(5).Exec(background,
					txlock.Statement{SQL: add(2), Rows: 1}, txlock.Statement{SQL: add(1), Rows: 1})
				executed <- err
			}()
			f.Waiters(t, 1)
		})
		return f.Exec(ctx, tx, add(2))
	}))
	require.NoError(t, testbed.Receive(t, executed))
	require.Equal(t, 3*(1+2), both())
	f.Free(t, f.Key("a"), f.Key("b"), f.Key("do"), f.Key("exec"))
}

func insert[Tx any](t *testing.T, f *testbed.Fixture[Tx], table string, ids ...int) {
	t.Helper()
	require.NoError(t, f.Locks.Mutex(f.Key("insert")).Do(background, func(ctx context.Context, tx Tx) error {
		for _, id := range ids {
			if err := f.Exec(ctx, tx, fmt.Sprintf("INSERT INTO %s VALUES (%d, 0)", table, id)); err != nil {
				return err
			}
		}
		return nil
	}))
}

// LossRetried shows what runs again when the session of its work is killed, and what does not.
func LossRetried[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	seen := &story{}
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", txlock.WithTracer(seen))
	table := f.MakeTable(t, "id int primary key, n int")
	insert(t, f, table, 1)
	seen.all(t, 3)
	runs := 0
	// killed adds 1, in a session that is killed when it is the first.
	killed := func(ctx context.Context, tx Tx) error {
		if runs++; runs == 1 {
			f.KillSession(t, tx)
		}
		return f.Exec(ctx, tx, "UPDATE "+table+" SET n = n + 1")
	}
	total := func() int { return f.Total(t, "SELECT n FROM "+table) }
	m := f.Locks.Mutex(f.Key("m"))

	require.Error(t, m.Do(background, killed))
	require.Equal(t, 1, runs)
	runs = 0
	require.NoError(t, m.Retry(2).Do(background, killed))
	var attempts []int
	for _, call := range seen.calls {
		attempts = append(attempts, call.Attempt)
	}
	require.Equal(t, []int{0, 0, 1}, attempts)
	require.Equal(t, 1, total())

	// An Exec in the work sends no COMMIT.
	runs = 0
	require.NoError(t, m.Retry(2).Do(background, func(ctx context.Context, tx Tx) error {
		if runs++; runs == 1 {
			f.KillSession(t, tx)
		}
		_, err := f.Locks.Mutex(f.Key("inside")).Exec(ctx, txlock.Statement{SQL: "UPDATE " + table + " SET n = n + 1"})
		return err
	}))
	require.Equal(t, 2, runs)
	require.Equal(t, 2, total())

	runs = 0
	require.NoError(t, m.Do(background, func(ctx context.Context, _ Tx) error {
		require.Error(t, m.Retry(2).Do(ctx, func(context.Context, Tx) error {
			runs++
			return txlock.ErrLost
		}))
		return nil
	}))
	require.Equal(t, 1, runs, "in another Do")

	runs = 0
	always := func(context.Context, Tx) error {
		runs++
		return fmt.Errorf("%w: said the work", txlock.ErrDeadlock)
	}
	err := m.Retry(2).TryDo(background, always)
	require.ErrorIs(t, err, txlock.ErrDeadlock)
	require.ErrorContains(t, err, "(in attempt 3)")
	require.Equal(t, 3, runs)
	ending, cancel := context.WithCancel(background)
	err = m.Retry(1<<30).Do(ending, func(ctx context.Context, tx Tx) error {
		cancel()
		return always(ctx, tx)
	})
	testbed.ErrorIs(t, err, txlock.ErrDeadlock, context.Canceled)

	runs = 0
	failed := errors.New("failed")
	require.ErrorIs(t, m.Retry(2).Do(background, func(context.Context, Tx) error {
		runs++
		return failed
	}), failed)
	require.Equal(t, 1, runs)
	runs = 0
	require.ErrorIs(t, m.Retry(2).Do(background, func(ctx context.Context, tx Tx) error {
		runs++
		return f.Exec(ctx, tx, "COMMIT")
	}), txlock.ErrLost)
	require.Equal(t, 1, runs, "something may be committed")
	runs = 0
	_, err = m.Retry(2).Exec(background, txlock.Statement{SQL: "COMMIT"})
	require.ErrorIs(t, err, txlock.ErrLost)
	require.NotContains(t, err.Error(), "attempt", "an Exec that was lost is final")
	require.ErrorContains(t, txlock.New[Tx](nil).Mutex("k").Retry(2).Do(background, killed), "nil driver")
	require.ErrorContains(t, m.Retry(0).Do(background, killed), "Retry(0)")
	f.Free(t, f.Key("m"))
}

// OnceRetried shows that a Once whose session is killed runs again, unless another has done the
// work meanwhile, and that a batch of Combine runs again as a whole.
func OnceRetried[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key, n int")
	insert(t, f, table, 1)
	add := func(ctx context.Context, tx Tx) error { return f.Exec(ctx, tx, "UPDATE "+table+" SET n = n + 1") }
	runs := 0
	ran, err := f.Locks.Once(f.OnceKey("again")).Retry(1).Do(background, func(ctx context.Context, tx Tx) error {
		if runs++; runs == 1 {
			f.KillSession(t, tx)
		}
		return add(ctx, tx)
	})
	require.NoError(t, err)
	require.True(t, ran)
	other := f.Locks.Once(f.OnceKey("other"))
	ran, err = other.Retry(1).Do(background, func(ctx context.Context, tx Tx) error {
		f.KillSession(t, tx)
		ran, err := other.Do(background, add)
		require.NoError(t, err)
		require.True(t, ran)
		return add(ctx, tx)
	})
	require.NoError(t, err)
	require.False(t, ran, "another did it")
	require.Equal(t, 2, f.Total(t, "SELECT n FROM "+table))

	o := newOrders(t, testbed.NewFixture(t, e, c))
	o.Combined = txlock.Combine(func(in []int) *txlock.Mutex[Tx] { return o.lock(in).Retry(1) }, o.work)
	runs = 0
	o.during = func(_ context.Context, tx Tx, in []int) error {
		if in[0] == 1 {
			if runs++; runs == 1 {
				o.KillSession(t, tx)
			}
		}
		return nil
	}
	for i, p := range o.together(t, 1, 2, 3) {
		p.is(t, 2*(i+1))
	}
	require.Equal(t, [][]int{{0}, {1, 2, 3}, {1, 2, 3}}, o.worked())
	require.Equal(t, []int{0, 1, 2, 3}, o.committed(t))
	o.Free(t, o.key)
}
