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
	"github.com/txlock/txlock/internal/wire"
)

type contextKey string

// Reentry shows that reentry follows the context, counts, and ends with the last handle.
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
	outer, err := f.Locks.Mutex(f.Key("1")).Lock(ctx)
	require.NoError(t, err)
	inner, err := f.Locks.Mutex(f.Key("2")).Lock(context.WithoutCancel(outer.Context()))
	require.NoError(t, err)
	require.NoError(t, outer.Unlock(ctx))
	require.NoError(t, inner.Unlock(ctx))
	require.NoError(t, f.Locks.Mutex(f.Key("3"), f.Key("4")).Do(ctx, func(ctx context.Context, _ Tx) error {
		inWork, err := f.Locks.Mutex(f.Key("6")).Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, f.Locks.Mutex(f.Key("5")).TryDo(inWork.Context(), func(context.Context, Tx) error {
			return nil
		}))
		return inWork.Unlock(ctx)
	}))
}

// NestedDo shows that a nested Do is a savepoint.
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

// DoInsideLock: nobody would read the error of the Unlock that commits it.
func DoInsideLock[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	proxy, err := wire.Listen(e.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	// No heartbeat is sent in the first minutes of such a lease.
	f := testbed.NewSizedFixture(t, e, c, 4, proxy.Addr(), txlock.WithLease(time.Hour))
	table := f.MakeTable(t, "id int primary key")
	insert := func(id string) func(context.Context, Tx) error {
		return func(ctx context.Context, tx Tx) error {
			return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES ("+id+")")
		}
	}
	never := func(context.Context, Tx) error {
		t.Error("the work must not run")
		return nil
	}
	m, other, free := f.Locks.Mutex(f.Key("m")), f.Locks.Mutex(f.Key("other")), f.Locks.Mutex(f.Key("free"))
	lock, err := m.Lock(background)
	require.NoError(t, err)
	joined, err := other.Lock(lock.Context())
	require.NoError(t, err)
	derived, cancel := context.WithCancel(context.WithValue(joined.Context(), contextKey("who"), "me"))
	defer cancel()
	before := proxy.Bursts()
	for name, ctx := range map[string]context.Context{
		"the Lock's": lock.Context(), "that of a Lock which joined it": joined.Context(), "a derived one": derived,
		"one without cancellation": context.WithoutCancel(lock.Context()),
	} {
		for _, m := range []*txlock.Mutex[Tx]{m, other, free} {
			require.ErrorIs(t, m.Do(ctx, never), txlock.ErrInsideLock, name)
			require.ErrorIs(t, m.TryDo(ctx, never), txlock.ErrInsideLock, name)
		}
	}
	require.Equal(t, before, proxy.Bursts(), "nothing is sent")
	require.NoError(t, lock.Context().Err(), "the lock is still held")
	f.Transactions(t, 1)
	again, err := free.Lock(joined.Context())
	require.NoError(t, err, "the session is usable")
	require.NoError(t, again.Unlock(background))
	f.Taken(t, f.Key("m"))
	f.Taken(t, f.Key("other"))

	// Apart from the Lock it is an ordinary Do of another owner, which commits by itself.
	apart := txlock.Apart(derived)
	require.Equal(t, "me", apart.Value(contextKey("who")))
	require.ErrorIs(t, m.TryDo(apart, never), txlock.ErrNotAcquired, "another owner holds it")
	require.NoError(t, f.Locks.Mutex(f.Key("apart")).Do(apart, insert("1")))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table), "it is committed before the Unlock")
	cancel()
	require.ErrorIs(t, apart.Err(), context.Canceled)
	require.ErrorIs(t, f.Locks.Mutex(f.Key("apart")).Do(apart, never), context.Canceled)
	require.NoError(t, joined.Unlock(background))
	require.NoError(t, lock.Unlock(background))
	f.Free(t, f.Key("m"), f.Key("other"), f.Key("free"), f.Key("apart"))
	require.NoError(t, m.Do(context.WithoutCancel(lock.Context()), insert("2")), "the Lock has ended")

	// A Lock that is taken in the work of a Do belongs to that Do: there a Do is a savepoint.
	require.NoError(t, m.Do(background, func(ctx context.Context, _ Tx) error {
		inWork, err := other.Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, free.Do(inWork.Context(), insert("4")))
		require.Equal(t, errWork, m.Do(inWork.Context(), func(ctx context.Context, tx Tx) error {
			require.NoError(t, insert("8")(ctx, tx))
			return errWork
		}))
		require.ErrorIs(t, m.TryDo(txlock.Apart(inWork.Context()), never), txlock.ErrNotAcquired)
		require.Equal(t, 2, f.Total(t, "SELECT COUNT(*) FROM "+table), "the outer Do has not committed")
		return inWork.Unlock(ctx)
	}))
	require.Equal(t, 1+2+4, f.Total(t, "SELECT SUM(id) FROM "+table))
}

// BesideNestedDo: savepoints are a stack, so only one nested Do runs at a time. While one runs,
// calls with a context that is not the one of its work are refused.
func BesideNestedDo[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
	outer, inner, other := f.Locks.Mutex(f.Key("outer")), f.Locks.Mutex(f.Key("inner")), f.Locks.Mutex(f.Key("other"))
	insert := func(id int) func(context.Context, Tx) error {
		return func(ctx context.Context, tx Tx) error {
			return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES ("+strconv.Itoa(id)+")")
		}
	}
	refused := func(ctx context.Context) {
		t.Helper()
		never := func(context.Context, Tx) error {
			t.Error("the work must not run")
			return nil
		}
		start := time.Now()
		_, lockErr := other.Lock(ctx)
		_, tryErr := other.TryLock(ctx)
		for verb, err := range map[string]error{
			"Lock": lockErr, "TryLock": tryErr, "Do": other.Do(ctx, never), "TryDo": other.TryDo(ctx, never),
			"Do of the same key": inner.Do(ctx, never),
		} {
			require.ErrorIs(t, err, txlock.ErrNotAcquired, verb)
			require.NotErrorIs(t, err, txlock.ErrLost, verb)
			require.ErrorContains(t, err, "must use the context that the work got", verb)
			require.ErrorContains(t, err, "must wait until it has returned", verb)
		}
		require.Less(t, time.Since(start), promptly)
	}
	require.NoError(t, outer.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, insert(1)(ctx, tx))
		// Beside it.
		inside, goOn, nested := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			nested <- inner.Do(ctx, func(ctx context.Context, tx Tx) error {
				close(inside)
				<-goOn
				return insert(2)(ctx, tx)
			})
		}()
		select {
		case <-inside:
		case err := <-nested:
			return fmt.Errorf("the nested Do did not come to its work: %w", err)
		}
		refused(ctx)
		close(goOn)
		require.NoError(t, <-nested)

		// Inside it, with the wrong context.
		require.NoError(t, inner.Do(ctx, func(nested context.Context, tx Tx) error {
			refused(ctx)
			lock, err := other.Lock(nested)
			require.NoError(t, err, "with its own context")
			require.NoError(t, other.Do(nested, func(deeper context.Context, tx Tx) error {
				refused(ctx)
				refused(nested)
				return insert(4)(deeper, tx)
			}))
			require.NoError(t, lock.Unlock(nested))
			return insert(8)(nested, tx)
		}))

		// After it the outer context works again.
		lock, err := other.Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(ctx))
		require.Equal(t, errWork, other.Do(ctx, func(ctx context.Context, tx Tx) error {
			require.NoError(t, insert(16)(ctx, tx))
			return errWork
		}))
		require.NoError(t, other.Do(ctx, insert(32)))
		require.NoError(t, insert(64)(ctx, tx))

		// Of many at once one runs, and the others are refused until they come at the right moment.
		// Half of them fail. None undoes another.
		var group errgroup.Group
		for i := range 8 {
			group.Go(func() error {
				for j := range 5 {
					id, failure := 1000+10*i+j, []error{nil, errWork}[(i+j)%2]
					work := func(ctx context.Context, tx Tx) error {
						if err := insert(id)(ctx, tx); err != nil {
							return err
						}
						own, err := f.Locks.Mutex(f.Key(strconv.Itoa(id))).Lock(ctx)
						if err != nil {
							return err
						}
						return errors.Join(own.Unlock(ctx), failure)
					}
					err := inner.Do(ctx, work)
					for errors.Is(err, txlock.ErrNotAcquired) {
						err = inner.Do(ctx, work)
					}
					if !errors.Is(err, failure) {
						return fmt.Errorf("nested Do %d: %w", id, err)
					}
				}
				return nil
			})
		}
		return group.Wait()
	}))
	require.Equal(t, 1+2+4+8+32+64, f.Total(t, "SELECT SUM(id) FROM "+table+" WHERE id < 1000"))
	require.Equal(t, 20, f.Total(t, "SELECT COUNT(*) FROM "+table+" WHERE id >= 1000"))
	for i := range 8 {
		for j := range 5 {
			query := fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE id = %d", table, 1000+10*i+j)
			require.Equal(t, 1-(i+j)%2, f.Total(t, query))
		}
	}
	f.Free(t, f.Key("outer"), f.Key("inner"), f.Key("other"))
}

// NestedDoLeftBehind: the outer work does not wait for the goroutine of a nested Do. The context of
// that Do ends, it is undone, and the outer Do commits.
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

// ForeignLoss: work may return the ErrLost of another Locker. Its own session is not lost by that.
func ForeignLoss[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	m := f.Locks.Mutex(f.Key("m"))
	loss := fmt.Errorf("of another: %w", txlock.ErrLost)
	lose := func(context.Context, Tx) error { return loss }
	require.NoError(t, m.Do(background, func(ctx context.Context, _ Tx) error {
		require.Equal(t, loss, m.Do(ctx, lose))
		require.NoError(t, ctx.Err())
		return m.Do(ctx, func(context.Context, Tx) error { return nil })
	}))
	require.Equal(t, loss, m.Do(background, lose))
	f.Free(t, f.Key("m"))
}

// NestedWaitEnds shows that a nested wait that ends leaves the outer lock held.
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

// NestedDeadlock shows that a nested deadlock is an error and never a silent loss.
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

// SharedContext shows that goroutines that share a context take turns: that of a Lock, and that of
// the work of a Do.
func SharedContext[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
	share := func(ctx context.Context) {
		var group errgroup.Group
		for i := range 8 {
			group.Go(func() error {
				for range 10 {
					lock, err := f.Locks.Mutex(f.Key(string(rune('a' + i)))).Lock(ctx)
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
	}
	outer, err := f.Locks.Mutex(f.Key("shared")).Lock(background)
	require.NoError(t, err)
	share(outer.Context())
	require.NoError(t, outer.Unlock(background))
	f.Free(t, f.Key("shared"), f.Key("c"))

	require.NoError(t, f.Locks.Mutex(f.Key("shared")).Do(background, func(ctx context.Context, tx Tx) error {
		share(ctx)
		return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)")
	}))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
	f.Free(t, f.Key("shared"), f.Key("c"))
}
