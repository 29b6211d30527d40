package guarantees

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// NestedDo shows that a nested Do is a savepoint.
func NestedDo[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key")
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
	// No heartbeat is sent in the first minutes of such a lease.
	f, proxy := testbed.Proxied(t, e, c, 4, txlock.WithLease(time.Hour))
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
	lock := testbed.Lock(t, m)
	joined := testbed.LockIn(t, lock.Context(), other)
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
	testbed.Unlock(t, again)
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
	testbed.Unlock(t, joined, lock)
	f.Free(t, f.Key("m"), f.Key("other"), f.Key("free"), f.Key("apart"))
	require.NoError(t, m.Do(context.WithoutCancel(lock.Context()), insert("2")), "the Lock has ended")

	// A Lock that is taken in the work of a Do belongs to that Do: there a Do is a savepoint.
	require.NoError(t, m.Do(background, func(ctx context.Context, _ Tx) error {
		inWork := testbed.LockIn(t, ctx, other)
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
	f, table := testbed.NewTable(t, e, c, "id int primary key")
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
			require.NotErrorIs(t, err, txlock.ErrNotAcquired, verb)
			require.NotErrorIs(t, err, txlock.ErrLost, verb)
			require.ErrorContains(t, err, "use the context that it got", verb)
			require.ErrorContains(t, err, "let one call follow the other", verb)
		}
		require.Less(t, time.Since(start), 20*time.Second, "the nested Do runs for as long as the test")
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
		lock := testbed.LockIn(t, ctx, other)
		require.NoError(t, lock.Unlock(ctx))
		require.Equal(t, errWork, other.Do(ctx, func(ctx context.Context, tx Tx) error {
			require.NoError(t, insert(16)(ctx, tx))
			return errWork
		}))
		require.NoError(t, other.Do(ctx, insert(32)))
		return insert(64)(ctx, tx)
	}))
	require.Equal(t, 1+2+4+8+32+64, f.Total(t, "SELECT SUM(id) FROM "+table))
	f.Free(t, f.Key("outer"), f.Key("inner"), f.Key("other"))
}
