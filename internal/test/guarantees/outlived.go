package guarantees

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// NestedDoOutlivesDo: the work of a Do has left a nested Do behind, whose context has no
// cancellation. Its error means that nothing of it is committed, and nil that it is.
func NestedDoOutlivesDo[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
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
					ended <- nested(context.WithoutCancel(outer), func(ctx context.Context, tx Tx) error {
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
			if round < 3 {
				require.ErrorIs(t, err, txlock.ErrNotHeld, name)
			}
			committed := f.Total(t, fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE id = %d", table, id)) == 1
			require.Equal(t, err == nil, committed, "%s: %v", name, err)
			if name == "Once.Do" {
				_, done, doneErr := once.Done(background)
				require.NoError(t, doneErr)
				require.Equal(t, committed, done)
				require.NoError(t, once.Forget(background))
			}
		}
	}
	f.Free(t, f.Key("outer"), f.Key("inner"))
}

// NestedDoStuck: the work of a nested Do has rolled back to a savepoint from before, and so has
// taken away the one behind which it runs. It cannot be undone, so nothing is committed.
func NestedDoStuck[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int")
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
