package guarantees

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/guarantees/testbed"
)

// UndoneLocks: on PostgreSQL, rolling back to a savepoint releases what was locked since. No handle
// may go on as if it were held.
func UndoneLocks[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	a, b, x := f.Locks.Mutex(f.Key("a")), f.Locks.Mutex(f.Key("b")), f.Locks.Mutex(f.Key("x"))
	holds := func(context.Context, Tx) error {
		f.Taken(t, f.Key("x"))
		return nil
	}
	require.NoError(t, a.Do(background, func(ctx context.Context, tx Tx) error {
		var left, deeper, inNested *txlock.Lock
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
		handlesEnded := func() {
			for _, lock := range []*txlock.Lock{left, deeper} {
				require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrNotHeld)
				require.ErrorIs(t, lock.Unlock(ctx), txlock.ErrNotHeld)
			}
		}
		require.ErrorIs(t, b.Do(ctx, fails(func() error { return errWork })), errWork)
		handlesEnded()
		require.NoError(t, x.Do(ctx, holds))
		require.Panics(t, func() { _ = b.Do(ctx, fails(func() error { panic("boom") })) })
		handlesEnded()
		require.NoError(t, x.Do(ctx, holds))
		require.NoError(t, b.Do(ctx, func(ctx context.Context, _ Tx) (err error) {
			inNested, err = x.Lock(ctx)
			return err
		}))
		require.NoError(t, inNested.Context().Err(), "the nested Do succeeded")
		require.NoError(t, inNested.Unlock(ctx))

		// The work's own savepoint.
		require.NoError(t, f.Exec(ctx, tx, "SAVEPOINT mine"))
		require.NoError(t, f.Locks.Mutex(f.Key("y")).Do(ctx, func(context.Context, Tx) error { return nil }))
		require.NoError(t, f.Exec(ctx, tx, "ROLLBACK TO SAVEPOINT mine"))
		return f.Locks.Mutex(f.Key("y")).Do(ctx, func(context.Context, Tx) error {
			f.Taken(t, f.Key("y"))
			return nil
		})
	}))
	f.Free(t, f.Key("a"), f.Key("b"), f.Key("x"), f.Key("y"))

	// A handle that was ended keeps nothing from being committed.
	table := f.MakeTable(t, "id int primary key")
	var left *txlock.Lock
	require.NoError(t, a.Do(background, func(ctx context.Context, _ Tx) error {
		require.ErrorIs(t, a.Do(ctx, func(ctx context.Context, _ Tx) (err error) {
			left, err = a.Lock(ctx)
			require.NoError(t, err)
			return errWork
		}), errWork)
		return a.Do(ctx, func(ctx context.Context, tx Tx) error {
			return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)")
		})
	}))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
	require.ErrorIs(t, left.Unlock(background), txlock.ErrNotHeld)
}

// UndoneWhileJoining: the work of a nested Do has left a call behind, which gets its lock just when
// that Do is undone.
func UndoneWhileJoining[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	other := testbed.NewFixture(t, e, c)
	m := f.Locks.Mutex(f.Key("late"))
	// If the call succeeds before the nested Do is undone, it has its lock until it returns.
	errEarly := errors.New("it ran, with its lock")
	early := func(context.Context, Tx) error {
		if _, err := other.Locks.Mutex(f.Key("late")).TryLock(background); !errors.Is(err, txlock.ErrNotAcquired) {
			return fmt.Errorf("it runs without its lock: %w", err)
		}
		return errEarly
	}
	for _, late := range []func(context.Context) error{
		func(ctx context.Context) error { return m.Do(ctx, early) },
		func(ctx context.Context) error {
			lock, err := m.Lock(ctx)
			if err != nil {
				return err
			}
			<-lock.Context().Done() // the lock was granted just before the Do was undone
			return errors.Join(context.Cause(lock.Context()), lock.Unlock(ctx))
		},
	} {
		held, err := other.Locks.Mutex(f.Key("late")).Lock(background)
		require.NoError(t, err)
		failed, unlocked := make(chan error, 1), make(chan error, 1)
		require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(outer context.Context, _ Tx) error {
			require.ErrorIs(t, f.Locks.Mutex(f.Key("nested")).Do(outer, func(ctx context.Context, _ Tx) error {
				go func() { failed <- late(context.WithoutCancel(ctx)) }()
				f.Waiters(t, 1)
				go func() {
					// the work has returned, and its savepoint is rolled back after the late call
					<-ctx.Done()
					unlocked <- held.Unlock(background)
				}()
				return errWork
			}), errWork)
			if err := <-failed; !errors.Is(err, errEarly) {
				require.ErrorIs(t, err, txlock.ErrNotHeld)
			}
			return <-unlocked
		}))
		f.Free(t, f.Key("late"), f.Key("outer"), f.Key("nested"))
	}
}

// UndoneContexts: a lock that was taken in the work of a nested Do that fails ends, with whatever
// waits by its context. The outer Do loses nothing.
func UndoneContexts[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	other := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
	held, err := other.Locks.Mutex(f.Key("held")).Lock(background)
	require.NoError(t, err)
	waits := make(chan error, 1)
	require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(outer context.Context, tx Tx) error {
		var inside context.Context
		require.ErrorIs(t, f.Locks.Mutex(f.Key("nested")).Do(outer, func(ctx context.Context, _ Tx) error {
			inside = context.WithoutCancel(ctx)
			left, err := f.Locks.Mutex(f.Key("left")).Lock(ctx)
			require.NoError(t, err)
			go func() {
				_, err := f.Locks.Mutex(f.Key("held")).Lock(left.Context()) // which ends with the lock alone
				waits <- err
			}()
			f.Waiters(t, 1)
			return errWork
		}), errWork)
		require.ErrorIs(t, <-waits, txlock.ErrNotHeld)
		_, err := f.Locks.Mutex(f.Key("left")).Lock(inside)
		require.ErrorIs(t, err, txlock.ErrNotHeld, "who comes later gets nothing either")
		return f.Exec(outer, tx, "INSERT INTO "+table+" VALUES (1)")
	}))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
	require.NoError(t, held.Unlock(background))
	f.Free(t, f.Key("held"), f.Key("outer"), f.Key("nested"), f.Key("left"))
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
