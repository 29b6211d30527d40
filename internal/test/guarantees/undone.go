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
				left = testbed.LockIn(t, ctx, x)
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
		again := testbed.LockIn(t, ctx, x)
		f.Taken(t, f.Key("x"))
		require.NoError(t, again.Unlock(ctx))
		require.Equal(t, context.Canceled, context.Cause(again.Context()))
		require.NoError(t, left.Context().Err())

		// The work's own savepoint.
		require.NoError(t, f.Exec(ctx, tx, "SAVEPOINT mine"))
		require.NoError(t, f.Locks.Mutex(f.Key("y")).Do(ctx, idle[Tx]))
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
	held := testbed.Lock(t, other.Locks.Mutex(f.Key("late")))
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
		require.ErrorContains(t, testbed.ErrorOf(m.Lock(inside)), "has returned")
		return f.Exec(outer, tx, "INSERT INTO "+table+" VALUES (1)")
	}))
	require.Equal(t, 1, f.Total(t, "SELECT SUM(id) FROM "+table))
	f.Free(t, f.Key("late"), f.Key("outer"), f.Key("nested"))
}

// NestedAfterMissed shows that a nested Do that fails undoes its own work and no other, also behind
// one that got some of its keys and missed the others.
func NestedAfterMissed[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key")
	holder := testbed.Lock(t, f.Locks.Mutex(f.Key("busy")))
	outer, work := f.Locks.Mutex(f.Key("outer")), idle[Tx]
	require.NoError(t, outer.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, testbed.ErrorOf(f.Locks.Mutex(f.Key("own")).Lock(ctx)))
		require.ErrorIs(t, f.Locks.Mutex(f.Key("own"), f.Key("busy")).Shared().TryDo(ctx, work), txlock.ErrNotAcquired)
		require.ErrorIs(t, f.Locks.Mutex(f.Key("busy")).TryDo(ctx, work), txlock.ErrNotAcquired)
		require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		require.ErrorIs(t, outer.Do(ctx, func(ctx context.Context, tx Tx) error {
			require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (2)"))
			return errWork
		}), errWork)
		return nil
	}))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
	testbed.Unlock(t, holder)
	require.Error(t, f.Locks.Rows(table, "id", "txlock: done").Do(background, work), "a value is no verdict")
}

// NestedDoOutlivesDo: the work of a Do has left a nested Do behind, whose context ends with it, or
// has no cancellation. The outer Do commits. The error of the nested one means that nothing of it
// is committed, and nil that it is.
func NestedDoOutlivesDo[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key")
	type work = func(context.Context, Tx) error
	inner, once := f.Locks.Mutex(f.Key("inner")), f.Locks.Once(f.OnceKey("once", "once:"))
	combined := txlock.Combine(func([]work) *txlock.Mutex[Tx] { return inner },
		func(ctx context.Context, tx Tx, in []work) ([]txlock.Result[int], error) {
			return make([]txlock.Result[int], len(in)), in[0](ctx, tx)
		})
	id := 0
	for name, nested := range map[string]func(context.Context, work) error{
		"Do":          inner.Do,
		"Once.Do":     func(ctx context.Context, w work) error { _, err := once.Do(ctx, w); return err },
		"Combined.Do": func(ctx context.Context, w work) error { _, err := combined.Do(ctx, w); return err },
	} {
		for round := range 10 {
			id++
			ended := make(chan error, 1)
			require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(outer context.Context, _ Tx) error {
				inside := make(chan struct{})
				go func() {
					ctx := context.WithoutCancel(outer)
					if round == 0 {
						ctx = outer
					}
					ended <- nested(ctx, func(ctx context.Context, tx Tx) error {
						err := f.Exec(outer, tx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, id))
						close(inside)
						if round < 3 { // else they end at the same moment
							<-ctx.Done()
						}
						return err
					})
				}()
				select {
				case <-inside:
					return nil
				case err := <-ended:
					select {
					case <-inside: // it was over at once
						ended <- err
						return nil
					default:
					}
					return fmt.Errorf("the nested Do did not come to its work: %w", err)
				}
			}))
			err := testbed.Receive(t, ended)
			if round == 0 {
				require.ErrorIs(t, err, context.Canceled, name)
			} else if round < 3 {
				require.ErrorIs(t, err, txlock.ErrNotHeld, name)
			}
			committed := f.Total(t, fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE id = %d", table, id)) == 1
			require.Equal(t, err == nil, committed, "%s: %v", name, err)
			if name == "Once.Do" {
				require.Equal(t, committed, testbed.IsDone(t, once))
				require.NoError(t, once.Forget(background))
			}
		}
	}
	f.Free(t, f.Key("outer"), f.Key("inner"))
}

// NestedDoStuck: the work of a nested Do has rolled back to a savepoint from before, and so has
// taken away the one behind which it runs. It cannot be undone, so nothing is committed.
func NestedDoStuck[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int")
	m := f.Locks.Mutex(f.Key("m"))
	stuck := func(ctx context.Context, tx Tx) {
		for _, statement := range []string{
			"ROLLBACK TO SAVEPOINT mine", "INSERT INTO " + table + " VALUES (1)", "SAVEPOINT further",
		} {
			require.NoError(t, f.Exec(ctx, tx, statement))
		}
	}
	for name, nested := range map[string]func(ctx context.Context, tx Tx) error{
		"it fails": func(ctx context.Context, _ Tx) error {
			require.Error(t, m.Do(ctx, func(ctx context.Context, tx Tx) error {
				stuck(ctx, tx)
				return errWork
			}))
			return nil
		},
		"it panics": func(ctx context.Context, tx Tx) error {
			require.Panics(t, func() {
				_ = m.Do(ctx, func(ctx context.Context, tx Tx) error {
					stuck(ctx, tx)
					panic("boom")
				})
			})
			_ = f.Exec(ctx, tx, "ROLLBACK TO SAVEPOINT further") // PostgreSQL goes on then
			return nil
		},
		"it outlives the outer Do": func(ctx context.Context, _ Tx) error {
			inside := make(chan struct{})
			go func() {
				_ = m.Do(context.WithoutCancel(ctx), func(ctx context.Context, tx Tx) error {
					stuck(ctx, tx)
					close(inside)
					<-ctx.Done()
					return nil
				})
			}()
			testbed.Receive(t, inside)
			return nil
		},
	} {
		require.Error(t, m.Do(background, func(ctx context.Context, tx Tx) error {
			require.NoError(t, f.Exec(ctx, tx, "SAVEPOINT mine"))
			return nested(ctx, tx)
		}), name)
		require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table), name)
	}
	f.Free(t, f.Key("m"))
}
