package guarantees

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/tier"
)

// oncePrefix is what the name of a Once's lock begins with.
const oncePrefix = "once:"

// idle is work that does nothing.
func idle[Tx any](context.Context, Tx) error { return nil }

// onceLater calls Do in the background.
func onceLater[Tx any](o *txlock.Once[Tx], work func(context.Context, Tx) error) <-chan onceResult {
	ended := make(chan onceResult, 1)
	go func() {
		ran, err := o.Do(background, work)
		ended <- onceResult{ran, err}
	}()
	return ended
}

type onceResult struct {
	ran bool
	err error
}

// started is a Do whose work has begun, and waits for its end.
type started struct {
	end  chan<- error
	over <-chan onceResult
}

func startOnce[Tx any](t *testing.T, o *txlock.Once[Tx]) started {
	t.Helper()
	begun, end := make(chan struct{}), make(chan error, 1)
	over := onceLater(o, func(ctx context.Context, _ Tx) error {
		close(begun)
		select {
		case err := <-end:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	testbed.Receive(t, begun)
	return started{end, over}
}

// OnceEach shows that work is committed once for each key, whoever asks for it, and that one caller
// is told that it ran.
func OnceEach[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	keys, callers := tier.Pick(3, 5, 500), tier.Pick(4, 4, 12)
	fixtures := []*testbed.Fixture[Tx]{testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)}
	f := fixtures[0]
	table := f.MakeTable(t, "n int")
	ran := make([]atomic.Int64, keys)
	var group errgroup.Group
	group.SetLimit(testbed.PoolSize)
	for n := range keys {
		key := f.OnceKey(fmt.Sprint("each", n), oncePrefix)
		for i := range callers {
			o := fixtures[i%2].Locks.Once(key)
			group.Go(func() error {
				did, err := o.Do(background, func(ctx context.Context, tx Tx) error {
					return f.Exec(ctx, tx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, n))
				})
				if did {
					ran[n].Add(1)
				}
				return err
			})
		}
	}
	require.NoError(t, group.Wait())
	for n := range keys {
		require.EqualValues(t, 1, ran[n].Load())
		require.Equal(t, 1, f.Total(t, fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE n = %d", table, n)))
	}
	doneOnce(t, f.Locks.Once(f.OnceKey("\x00\xff"+strings.Repeat("long", 1000), oncePrefix)))
}

// doneOnce shows that the first of two calls does the work.
func doneOnce[Tx any](t *testing.T, o *txlock.Once[Tx]) {
	t.Helper()
	for _, want := range []bool{true, false} {
		ran, err := o.Do(background, idle[Tx])
		require.NoError(t, err)
		require.Equal(t, want, ran)
	}
}

// OnceWaits shows that a call waits while the work runs, and what it gets then. What was done is
// found without the lock.
func OnceWaits[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	key := f.OnceKey("waits", oncePrefix)
	o := f.Locks.Once(key)
	for _, failed := range []error{errWork, nil} {
		first := startOnce(t, o)
		require.False(t, testbed.IsDone(t, o))
		require.ErrorIs(t, testbed.ErrorOf(o.TryDo(background, idle[Tx])), txlock.ErrNotAcquired)
		_, err := o.Within(20*time.Millisecond).Do(background, idle[Tx])
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		second := onceLater(o, func(context.Context, Tx) error { return errWork })
		f.Waiters(t, 1)
		holdings, err := f.Locks.Inspect(background, oncePrefix+key)
		require.NoError(t, err)
		require.Len(t, holdings, 1)
		first.end <- failed
		require.Equal(t, onceResult{failed == nil, failed}, testbed.Receive(t, first.over))
		next := testbed.Receive(t, second)
		require.False(t, next.ran)
		require.Equal(t, failed, next.err, "it runs where the first has failed, and fails as well")
	}
	lock := testbed.Lock(t, f.Locks.Mutex(oncePrefix+key))
	for _, try := range []func(context.Context, func(context.Context, Tx) error) (bool, error){o.Do, o.TryDo} {
		ran, err := try(background, idle[Tx])
		require.NoError(t, err)
		require.False(t, ran)
	}
	testbed.Unlock(t, lock)
}

// OnceFails shows that work which failed, panicked, or lost its session leaves no marker.
func OnceFails[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "n int")
	o := f.Locks.Once(f.OnceKey("fails", oncePrefix))
	insert := func(ctx context.Context, tx Tx) error { return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)") }
	failing := func(ctx context.Context, then func(tx Tx) error) (bool, error) {
		return o.Do(ctx, func(ctx context.Context, tx Tx) error {
			require.NoError(t, insert(ctx, tx))
			return then(tx)
		})
	}
	ran, err := failing(background, func(Tx) error { return errWork })
	require.ErrorIs(t, err, errWork)
	require.False(t, ran)
	require.PanicsWithValue(t, "boom", func() { _, _ = failing(background, func(Tx) error { panic("boom") }) })
	ran, err = failing(background, func(tx Tx) error {
		f.KillSession(t, tx)
		return nil
	})
	require.ErrorIs(t, err, txlock.ErrLost)
	require.False(t, ran)
	ctx, cancel := context.WithCancel(background)
	ran, err = failing(ctx, func(Tx) error {
		cancel()
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, ran)
	require.False(t, testbed.IsDone(t, o))
	ran, err = o.Do(background, insert)
	require.NoError(t, err)
	require.True(t, ran)
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
}

// OnceNested shows that in the work of a Do the marker shares the fate of its work, and of that Do.
func OnceNested[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	outer := f.Locks.Mutex(f.Key("outer"))
	o, failing := f.Locks.Once(f.OnceKey("kept", oncePrefix)), f.Locks.Once(f.OnceKey("failing", oncePrefix))
	done := func(o *txlock.Once[Tx]) bool {
		return testbed.IsDone(t, o)
	}
	for _, end := range []error{errWork, nil} {
		var over context.Context
		err := outer.Do(background, func(ctx context.Context, _ Tx) error {
			for _, want := range []bool{true, false} {
				ran, err := o.Do(ctx, func(ctx context.Context, _ Tx) error {
					ran, err := o.TryDo(ctx, idle[Tx])
					require.NoError(t, err)
					require.False(t, ran, "it runs just now")
					return nil
				})
				require.NoError(t, err)
				require.Equal(t, want, ran)
			}
			ran, err := failing.Do(ctx, func(ctx context.Context, _ Tx) error {
				over = ctx
				return errWork
			})
			require.ErrorIs(t, err, errWork)
			require.False(t, ran)
			for _, late := range []context.Context{over, context.WithoutCancel(over)} {
				_, err = failing.Do(late, idle[Tx])
				require.Error(t, err, "it was not done, and that work is over")
			}
			require.False(t, done(o), "it is not committed")
			return end
		})
		require.Equal(t, end, err)
		require.Equal(t, end == nil, done(o))
		require.False(t, done(failing))
	}
	require.NoError(t, outer.Do(background, func(ctx context.Context, _ Tx) error {
		require.NoError(t, o.Forget(ctx))
		ran, err := o.Do(ctx, idle[Tx])
		require.NoError(t, err)
		require.True(t, ran)
		return nil
	}))
	lock := testbed.Lock(t, outer)
	require.ErrorIs(t, testbed.ErrorOf(o.Do(lock.Context(), idle[Tx])), txlock.ErrInsideLock)
	testbed.Unlock(t, lock)
}

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
			require.False(t, testbed.IsDone(t, o), name)
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
		doneOnce(t, o)
	}
}
