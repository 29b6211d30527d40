package guarantees

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// UndoneLocks: on PostgreSQL, rolling back to a savepoint releases what was locked since. Nobody
// believes in such a lock afterwards: each call locks anew. A Lock that was taken in the work of a
// Do ends with its Unlock, or with the outermost Do.
func UndoneLocks[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	a, b, x := f.Locks.Mutex(f.Key("a")), f.Locks.Mutex(f.Key("b")), f.Locks.Mutex(f.Key("x"))
	holds := func(context.Context, Tx) error {
		f.Taken(t, f.Key("x"))
		return nil
	}
	var left, deeper *txlock.Lock
	require.NoError(t, a.Do(background, func(ctx context.Context, tx Tx) error {
		fails := func(fail func() error) func(context.Context, Tx) error {
			return func(ctx context.Context, _ Tx) (err error) {
				require.NoError(t, x.Do(ctx, holds))
				left, err = x.Lock(ctx)
				require.NoError(t, err)
				require.NoError(t, b.Do(ctx, func(ctx context.Context, _ Tx) (err error) {
					deeper, err = x.Lock(ctx)
					return err
				}))
				return fail()
			}
		}
		require.ErrorIs(t, b.Do(ctx, fails(func() error { return errWork })), errWork)
		require.NoError(t, x.Do(ctx, holds))
		require.Panics(t, func() { _ = b.Do(ctx, fails(func() error { panic("boom") })) })
		again, err := x.Lock(ctx)
		require.NoError(t, err)
		f.Taken(t, f.Key("x"))
		require.NoError(t, again.Unlock(ctx))
		require.Equal(t, context.Canceled, context.Cause(again.Context()))
		require.NoError(t, left.Context().Err())

		// The work's own savepoint.
		require.NoError(t, f.Exec(ctx, tx, "SAVEPOINT mine"))
		require.NoError(t, f.Locks.Mutex(f.Key("y")).Do(ctx, func(context.Context, Tx) error { return nil }))
		require.NoError(t, f.Exec(ctx, tx, "ROLLBACK TO SAVEPOINT mine"))
		return f.Locks.Mutex(f.Key("y")).Do(ctx, func(context.Context, Tx) error {
			f.Taken(t, f.Key("y"))
			return nil
		})
	}))
	for _, lock := range []*txlock.Lock{left, deeper} {
		require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrNotHeld)
		require.ErrorIs(t, lock.Unlock(background), txlock.ErrNotHeld)
	}
	f.Free(t, f.Key("a"), f.Key("b"), f.Key("x"), f.Key("y"))
}

// UndoneWhileJoining: the work of a nested Do that fails has left a call behind, which still waits
// for its lock. Its savepoint is rolled back behind that call, and the outer Do loses nothing. A
// call that comes later, with the context of a nested Do that has returned, is an error.
func UndoneWhileJoining[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	other := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
	m := f.Locks.Mutex(f.Key("late"))
	held, err := other.Locks.Mutex(f.Key("late")).Lock(background)
	require.NoError(t, err)
	late, unlocked := make(chan error, 1), make(chan error, 1)
	require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(outer context.Context, tx Tx) error {
		var inside context.Context
		require.ErrorIs(t, f.Locks.Mutex(f.Key("nested")).Do(outer, func(ctx context.Context, _ Tx) error {
			inside = context.WithoutCancel(ctx)
			go func() {
				late <- m.Do(inside, func(ctx context.Context, tx Tx) error {
					_, err := other.Locks.Mutex(f.Key("late")).TryLock(background)
					if !errors.Is(err, txlock.ErrNotAcquired) {
						return fmt.Errorf("it runs without its lock: %w", err)
					}
					return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (2)")
				})
			}()
			f.Waiters(t, 1)
			go func() {
				<-ctx.Done() // the work has returned
				unlocked <- held.Unlock(background)
			}()
			return errWork
		}), errWork)
		require.NoError(t, testbed.Receive(t, unlocked))
		require.NoError(t, testbed.Receive(t, late), "it was under way, and was undone with its Do")
		_, err := m.Lock(inside)
		require.ErrorContains(t, err, "has returned")
		return f.Exec(outer, tx, "INSERT INTO "+table+" VALUES (1)")
	}))
	require.Equal(t, 1, f.Total(t, "SELECT SUM(id) FROM "+table))
	f.Free(t, f.Key("late"), f.Key("outer"), f.Key("nested"))
}

// NestedAfterMissed shows that a nested Do that fails undoes its own work and no other, also behind
// one that got some of its keys and missed the others.
func NestedAfterMissed[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
	holder, err := f.Locks.Mutex(f.Key("busy")).Lock(background)
	require.NoError(t, err)
	outer, work := f.Locks.Mutex(f.Key("outer")), func(context.Context, Tx) error { return nil }
	require.NoError(t, outer.Do(background, func(ctx context.Context, tx Tx) error {
		_, err := f.Locks.Mutex(f.Key("own")).Lock(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, f.Locks.Mutex(f.Key("own"), f.Key("busy")).Shared().TryDo(ctx, work), txlock.ErrNotAcquired)
		require.ErrorIs(t, f.Locks.Mutex(f.Key("busy")).TryDo(ctx, work), txlock.ErrNotAcquired)
		require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		err = outer.Do(ctx, func(ctx context.Context, tx Tx) error {
			require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (2)"))
			return errWork
		})
		require.ErrorIs(t, err, errWork)
		return nil
	}))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
	require.NoError(t, holder.Unlock(background))
	require.Error(t, f.Locks.Rows(table, "id", "txlock: done").Do(background, work), "a value is no verdict")
}
