package guarantees

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// OnceSelfEnded shows that a Once which returns an error has left no marker, whatever its work did
// to the transaction: by itself, or in the work of another Do. Work that marks its own key has that
// error.
func OnceSelfEnded[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	endings := map[string]string{"COMMIT": "COMMIT", "ROLLBACK": "ROLLBACK"}
	if e.Postgres {
		endings["a new transaction"] = "COMMIT; BEGIN"
		endings["a new writing transaction"] = "COMMIT; BEGIN READ WRITE"
	} else {
		endings["DDL"] = "CREATE TABLE IF NOT EXISTS " + f.Label + ".made (id int primary key)"
		endings["autocommit"] = "SET autocommit = 1"
	}
	key := f.OnceKey("ended", oncePrefix, oncePrefix+(24*time.Hour).String()+":")
	outer := f.Locks.Mutex(f.Key("outer"))
	for _, o := range []*txlock.Once[Tx]{f.Locks.Once(key), f.Locks.Once(key).Per(24 * time.Hour)} {
		unmarked := func(ran bool, err error, name string) {
			t.Helper()
			require.Error(t, err, name)
			require.False(t, ran, name)
			_, done, err := o.Done(background)
			require.NoError(t, err)
			require.False(t, done, name)
		}
		for name, ending := range endings {
			for _, failed := range []error{errWork, nil} {
				work := func(ctx context.Context, tx Tx) error {
					require.NoError(t, f.Exec(ctx, tx, ending))
					return failed
				}
				ran, err := o.Do(background, work)
				unmarked(ran, err, name)
				err = outer.Do(background, func(ctx context.Context, _ Tx) (err error) {
					ran, err = o.Do(ctx, work)
					return err
				})
				unmarked(ran, err, name+" in a Do")
			}
		}
		for _, failed := range []error{errWork, nil} {
			ran, err := o.Do(background, func(ctx context.Context, tx Tx) error {
				return cmp.Or(f.End(ctx, tx, true), failed) // pgx's handle refuses it
			})
			unmarked(ran, err, "Commit of the handle")
		}
		twice := func(_ context.Context, tx Tx) error { // which is nobody's error but its own
			first, err := o.DoTx(background, tx)
			require.NoError(t, err)
			require.True(t, first)
			return nil
		}
		ran, err := o.Do(background, twice)
		unmarked(ran, err, "DoTx in the work")
		require.NotErrorIs(t, err, txlock.ErrLost)
		require.NoError(t, outer.Do(background, func(ctx context.Context, _ Tx) error {
			ran, err = o.Do(ctx, twice)
			return nil
		}))
		unmarked(ran, err, "DoTx in the work in a Do")
		for name, verb := range map[string]func(context.Context, Tx) error{
			"Forget": func(ctx context.Context, _ Tx) error { return o.Forget(ctx) },
			"DoTx": func(ctx context.Context, tx Tx) error {
				first, err := o.DoTx(ctx, tx)
				require.False(t, first)
				return err
			},
		} {
			ran, err = o.Do(background, verb)
			unmarked(ran, err, name+" in the work")
			require.ErrorContains(t, err, "under way")
		}
		for _, want := range []bool{true, false} {
			ran, err := o.Do(background, idle[Tx])
			require.NoError(t, err)
			require.Equal(t, want, ran)
		}
	}
}
