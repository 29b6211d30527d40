package guarantees

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/guarantees/testbed"
)

type contextKey string

func Reentry[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	a, b := f.Key("a"), f.Key("b")
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}} {
		outer, err := f.Locks.Mutex(a).Lock(context.WithValue(background, contextKey("who"), "me"))
		require.NoError(t, err)
		require.Equal(t, "me", outer.Context().Value(contextKey("who")))
		again, err := f.Locks.Mutex(a).Lock(outer.Context())
		require.NoError(t, err)
		tried, err := f.Locks.Mutex(a).TryLock(again.Context())
		require.NoError(t, err)
		other, err := f.Locks.Mutex(b, a).Lock(tried.Context())
		require.NoError(t, err)
		_, err = f.Locks.Mutex(a).TryLock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired, "a sibling without the context is another owner")
		f.Transactions(t, 1) // one session for all of them

		handles := []*txlock.Lock{outer, again, tried, other}
		for i, which := range order {
			f.Taken(t, a)
			f.Taken(t, b)
			require.NoError(t, handles[which].Context().Err())
			require.NoError(t, handles[which].Unlock(background))
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
	lock, err := f.Locks.Mutex(a).Lock(background)
	require.NoError(t, err)
	_, err = second.Locks.Mutex(a).TryLock(lock.Context())
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.NoError(t, lock.Unlock(background))
	// A context that outlived its lock owns nothing.
	ended := context.WithoutCancel(lock.Context())
	fresh, err := f.Locks.Mutex(a).Lock(ended)
	require.NoError(t, err)
	f.Taken(t, a)
	require.NoError(t, fresh.Unlock(background))
	// A handle that its Do left open is released with it.
	var left *txlock.Lock
	require.NoError(t, f.Locks.Mutex(a).Do(background, func(ctx context.Context, _ Tx) (err error) {
		left, err = f.Locks.Mutex(b).Lock(ctx)
		return err
	}))
	f.Free(t, a, b)
	require.ErrorIs(t, context.Cause(left.Context()), txlock.ErrNotHeld)
	require.ErrorIs(t, left.Unlock(background), txlock.ErrNotHeld)
}

func OneConnection[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 1, "")
	ctx, cancel := context.WithTimeout(background, 10*time.Second)
	defer cancel()
	outer, err := f.Locks.Mutex(f.Key("1")).Lock(ctx)
	require.NoError(t, err)
	inner, err := f.Locks.Mutex(f.Key("2")).Lock(context.WithoutCancel(outer.Context()))
	require.NoError(t, err)
	nested := func(ctx context.Context, _ Tx) error {
		return f.Locks.Mutex(f.Key("5")).TryDo(ctx, func(context.Context, Tx) error { return nil })
	}
	err = f.Locks.Mutex(f.Key("3"), f.Key("4")).Do(inner.Context(), nested)
	if !e.Postgres && f.Pool.InUse != nil {
		// On a caller's pool a Lock's session is at the server's default, REPEATABLE READ: what the
		// work has read would stay as it was, under the lock of key 5 too.
		require.ErrorIs(t, err, txlock.ErrIsolation)
	} else {
		require.NoError(t, err)
	}
	require.NoError(t, outer.Unlock(ctx))
	require.NoError(t, inner.Unlock(ctx))
	require.NoError(t, f.Locks.Mutex(f.Key("3"), f.Key("4")).Do(ctx, nested))
}

func NestedDo[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
	m, other := f.Locks.Mutex(f.Key("outer")), f.Locks.Mutex(f.Key("inner"))
	insert := func(id string) func(context.Context, Tx) error {
		return func(ctx context.Context, tx Tx) error {
			return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES ("+id+")")
		}
	}
	require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, insert("1")(ctx, tx))
		require.NoError(t, other.Do(ctx, insert("2")))
		require.Equal(t, errWork, m.Do(ctx, func(ctx context.Context, tx Tx) error {
			require.NoError(t, insert("3")(ctx, tx))
			require.NoError(t, other.Do(ctx, insert("4")))
			return errWork
		}))
		require.Panics(t, func() {
			_ = other.Do(ctx, func(ctx context.Context, tx Tx) error {
				require.NoError(t, insert("5")(ctx, tx))
				panic("boom")
			})
		})
		f.Taken(t, f.Key("inner"))
		require.NoError(t, other.Do(ctx, insert("6")))
		return insert("7")(ctx, tx)
	}))
	require.Equal(t, 1+2+6+7, f.Total(t, "SELECT SUM(id) FROM "+table))
	f.Free(t, f.Key("outer"), f.Key("inner"))

	require.Equal(t, errWork, m.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, other.Do(ctx, insert("8")))
		return errWork
	}))
	require.Equal(t, 4, f.Total(t, "SELECT COUNT(*) FROM "+table), "the outer's failure undoes the inner's work")
}

func DoInsideLock[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
	insert := func(id string) func(context.Context, Tx) error {
		return func(ctx context.Context, tx Tx) error {
			return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES ("+id+")")
		}
	}
	lock, err := f.Locks.Mutex(f.Key("lock")).Lock(background)
	require.NoError(t, err)
	require.NoError(t, f.Locks.Mutex(f.Key("lock")).Do(lock.Context(), insert("1")))
	require.Equal(t, errWork, f.Locks.Mutex(f.Key("lock")).Do(lock.Context(), func(ctx context.Context, tx Tx) error {
		require.NoError(t, insert("2")(ctx, tx))
		return errWork
	}))
	require.NoError(t, f.Locks.Mutex(f.Key("lock"), f.Key("lock")).Do(lock.Context(), insert("3")))
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table), "nothing is visible before the Unlock")
	require.NoError(t, lock.Unlock(background))
	require.Equal(t, 1+3, f.Total(t, "SELECT SUM(id) FROM "+table))

	// Work that ends the transaction makes the Unlock an error, not a commit.
	lock, err = f.Locks.Mutex(f.Key("lock")).Lock(background)
	require.NoError(t, err)
	require.ErrorIs(t, f.Locks.Mutex(f.Key("lock")).Do(lock.Context(), func(ctx context.Context, tx Tx) error {
		require.NoError(t, insert("4")(ctx, tx))
		require.NoError(t, f.Exec(ctx, tx, "ROLLBACK"))
		// there the client library sees that the transaction is gone, and the pool's default is the
		// caller's
		if !e.Postgres {
			_ = insert("5")(ctx, tx)
		}
		return nil
	}), txlock.ErrLost)
	require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	require.Equal(t, 2, f.Total(t, "SELECT COUNT(*) FROM "+table))
}

// Savepoints are a stack: nested Dos of several goroutines must not undo each other.
func ConcurrentNestedDos[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key, undone int")
	m := f.Locks.Mutex(f.Key("m"))
	require.NoError(t, m.Do(background, func(ctx context.Context, _ Tx) error {
		var group errgroup.Group
		for i := range 8 {
			group.Go(func() error {
				for j := range 5 {
					undone := (i + j) % 2
					failure := []error{nil, errWork}[undone]
					err := m.Do(ctx, func(ctx context.Context, tx Tx) error {
						id := strconv.Itoa(10*i + j)
						if err := f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES ("+id+", "+strconv.Itoa(
							undone)+")"); err != nil {
							return err
						}
						own, err := f.Locks.Mutex(f.Key(id)).Lock(ctx) // in the turn of this nested Do
						if err != nil {
							return err
						}
						if err := own.Unlock(ctx); err != nil {
							return err
						}
						return failure
					})
					if !errors.Is(err, failure) {
						return fmt.Errorf("nested Do %d of %d: %w", j, i, err)
					}
				}
				return nil
			})
		}
		return group.Wait()
	}))
	require.Equal(t, 20, f.Total(t, "SELECT COUNT(*) FROM "+table))
	require.Zero(t, f.Total(t, "SELECT SUM(undone) FROM "+table))
}

// A nested Do whose goroutine the outer one does not wait for: its context ends, it is undone, and
// the outer one is committed.
func NestedDoLeftBehind[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
	m := f.Locks.Mutex(f.Key("m"))
	nested := make(chan error, 1)
	require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		inside := make(chan struct{})
		go func() {
			nested <- m.Do(ctx, func(ctx context.Context, tx Tx) error {
				err := f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (2)")
				close(inside)
				<-ctx.Done()
				return err
			})
		}()
		select {
		case <-inside:
			return nil
		case err := <-nested:
			return fmt.Errorf("the nested Do did not come to its work: %w", err)
		}
	}))
	require.ErrorIs(t, <-nested, context.Canceled)
	require.Equal(t, 1, f.Total(t, "SELECT SUM(id) FROM "+table))
	f.Free(t, f.Key("m"))
}

// Work may return the ErrLost of another Locker: its own session is not lost by that.
func ForeignLoss[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	m := f.Locks.Mutex(f.Key("m"))
	loss := fmt.Errorf("of another: %w", txlock.ErrLost)
	lose := func(context.Context, Tx) error { return loss }
	lock, err := m.Lock(background)
	require.NoError(t, err)
	require.Equal(t, loss, m.Do(lock.Context(), lose))
	require.NoError(t, lock.Context().Err())
	require.NoError(t, m.Do(lock.Context(), func(context.Context, Tx) error { return nil }))
	require.NoError(t, lock.Unlock(background))
	require.Equal(t, loss, m.Do(background, lose))
	f.Free(t, f.Key("m"))
}

func NestedWaitEnds[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
	holder, err := f.Locks.Mutex(f.Key("held")).Lock(background)
	require.NoError(t, err)
	held := f.Locks.Mutex(f.Key("held"))
	require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, tx Tx) error {
		_, err := held.TryLock(ctx)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		_, err = held.Within(30 * time.Millisecond).Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, held.Within(30*time.Millisecond).Do(ctx, func(context.Context, Tx) error { return nil }),
			txlock.ErrNotAcquired)
		waiting, cancel := context.WithCancel(ctx)
		failed := make(chan error, 1)
		go func() {
			_, err := held.Lock(waiting)
			failed <- err
		}()
		f.Waiters(t, 1)
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		_, err = f.Locks.Rows(table, "id", 1).Lock(ctx)
		require.ErrorIs(t, err, txlock.ErrNoRow)
		f.Taken(t, f.Key("outer"))
		return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)")
	}))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
	require.NoError(t, holder.Unlock(background))
	f.Free(t, f.Key("held"), f.Key("outer"))
}

func NestedDeadlock[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	a, b := f.Locks.Mutex(f.Key("a")), f.Locks.Mutex(f.Key("b"))
	errs := make(chan error, 2)
	locked := make(chan struct{}, 2)
	bothLocked := make(chan struct{})
	for _, order := range [][]*txlock.Mutex[Tx]{{a, b}, {b, a}} {
		go func() {
			errs <- order[0].Do(background, func(ctx context.Context, _ Tx) error {
				locked <- struct{}{}
				<-bothLocked
				inner, err := order[1].Lock(ctx)
				if err != nil {
					return err
				}
				return inner.Unlock(ctx)
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
	close(bothLocked)
	first, second := <-errs, <-errs
	if first == nil {
		first, second = second, first
	}
	require.ErrorIs(t, first, txlock.ErrDeadlock)
	require.NoError(t, second)
	f.Free(t, f.Key("a"), f.Key("b"))
}

func SharedContext[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	outer, err := f.Locks.Mutex(f.Key("shared")).Lock(background)
	require.NoError(t, err)
	var group errgroup.Group
	for i := range 8 {
		group.Go(func() error {
			for range 10 {
				lock, err := f.Locks.Mutex(f.Key(string(rune('a' + i)))).Lock(outer.Context())
				if err != nil {
					return err
				}
				if err := lock.Unlock(background); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	f.Taken(t, f.Key("c"))
	require.NoError(t, outer.Unlock(background))
	f.Free(t, f.Key("shared"), f.Key("c"))
}
