package guarantees

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/wire"
)

// Unlock shows that Unlock works on a cancelled context, once.
func Unlock[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	ctx, cancel := context.WithCancel(background)
	lock, err := f.Locks.Mutex(f.Key("unlock")).Lock(ctx)
	require.NoError(t, err)
	require.Zero(t, lock.Token())
	cancel()
	require.NoError(t, lock.Context().Err(), "the hold does not end with the context of the wait")
	require.NoError(t, lock.Unlock(ctx))
	require.ErrorIs(t, lock.Context().Err(), context.Canceled)

	next, err := f.Locks.Mutex(f.Key("unlock")).Lock(background)
	require.NoError(t, err)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrNotHeld)
	f.Taken(t, f.Key("unlock")) // the second Unlock did not harm the next holder
	require.NoError(t, next.Unlock(background))
}

// Closing shows that Close ends what is held.
func Closing[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	watcher := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
	lock, err := f.Locks.Mutex(f.Key("lock")).Lock(background)
	require.NoError(t, err)
	done, _ := f.StartWork(f.Key("do"), table)
	begun, foreign := make(chan struct{}), make(chan error, 1)
	go func() {
		foreign <- f.Locks.Mutex(f.Key("foreign")).Do(background, func(ctx context.Context, _ Tx) error {
			close(begun)
			<-ctx.Done()
			return fmt.Errorf("of another: %w", txlock.ErrLost)
		})
	}()
	testbed.Receive(t, begun)
	require.NoError(t, f.Locks.Close())
	require.ErrorIs(t, <-foreign, txlock.ErrClosed)
	require.ErrorIs(t, <-done, txlock.ErrLost)
	require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	watcher.Free(t, f.Key("lock"), f.Key("do"))
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))

	_, err = f.Locks.Mutex(f.Key("lock")).Lock(background)
	require.ErrorContains(t, err, "closed")
	require.ErrorContains(t, f.Locks.Install(background), "closed")
	require.NoError(t, f.Locks.Close(), "a second Close is harmless")
}

// FullPool shows that a full pool is an error in time.
func FullPool[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 2, "")
	var locks []*txlock.Lock
	for _, name := range []string{"1", "2"} {
		lock, err := f.Locks.Mutex(f.Key(name)).Lock(background)
		require.NoError(t, err)
		locks = append(locks, lock)
	}
	m := f.Locks.Mutex(f.Key("3"))
	for name, m := range map[string]*txlock.Mutex[Tx]{"Within": m.Within(150 * time.Millisecond), "deadline": m} {
		endsPromptly(t, name, func() time.Duration {
			const limit = 200 * time.Millisecond
			ctx, cancel := context.WithTimeout(background, limit)
			defer cancel()
			start := time.Now()
			err := answer(t, func() error { _, err := m.Lock(ctx); return err })
			require.ErrorIs(t, err, txlock.ErrNotAcquired)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "2 of 2 are in use")
			err = answer(t, func() error { _, err := m.TryLock(ctx); return err })
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return time.Since(start) - limit
		})
	}
	// A cancelled waiter in a full pool returns at once as well, though no connection is left for
	// an interrupt.
	require.NoError(t, locks[1].Unlock(background))
	endsPromptly(t, "cancelled", func() time.Duration {
		ctx, cancel := context.WithCancel(background)
		failed := make(chan error, 1)
		go func() {
			_, err := f.Locks.Mutex(f.Key("1")).Lock(ctx)
			failed <- err
		}()
		f.Waiters(t, 1)
		cancelled := time.Now()
		cancel()
		require.ErrorIs(t, testbed.Receive(t, failed), context.Canceled)
		late := time.Since(cancelled)
		f.Waiters(t, 0)
		return late
	})
	require.NoError(t, locks[0].Unlock(background))
	f.Free(t, f.Key("1"))

	// The limit is also that of the look for the lock table, which Rows need not know.
	one := testbed.NewSizedFixture(t, e, c, 1, "")
	table := one.MakeTable(t, "id int primary key")
	one.AsAdmin(t, "INSERT INTO "+table+" VALUES (1)")
	lock, err := one.Locks.Rows(table, "id", 1).Lock(background)
	require.NoError(t, err)
	once := one.Locks.Once(one.OnceKey("once", "once:")).Within(time.Second)
	endsPromptly(t, "Forget", func() time.Duration {
		begun := time.Now()
		err := answer(t, func() error { return once.Forget(background) })
		late := time.Since(begun) - time.Second
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return late
	})
	_, err = one.Locks.Mutex(one.Key("a")).Lock(lock.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "call Install or Check at start")
	require.NoError(t, lock.Unlock(background))
}

// CleanPool shows that after any error the pool has its connections back, clean.
func CleanPool[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 1, "")
	holder := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
	held, err := holder.Locks.Mutex(f.Key("held")).Lock(background)
	require.NoError(t, err)
	m := f.Locks.Mutex(f.Key("held"))

	session := func() string {
		t.Helper()
		id := ""
		read := "SELECT CONCAT(CONNECTION_ID(), '')"
		if e.Postgres {
			read = "SELECT pg_backend_pid()::text"
		}
		require.NoError(t, f.Locks.Mutex(f.Key("look")).Do(background, func(ctx context.Context, tx Tx) (err error) {
			id, err = f.Query(ctx, tx, read)
			return err
		}))
		return id
	}
	// A busy machine may answer later than a wait may take, which costs it its connection.
	same, before := false, ""
	for run := 0; run < 3 && !same; run++ {
		before = session()
		errorsOfAllKinds(t, f, m, table)
		same = before == session()
	}
	require.True(t, same, "the pool has the same connection as before")
	if !e.Postgres { // what ended the transaction may have left a lock of the session's
		require.ErrorIs(t, f.Locks.Mutex(f.Key("own")).Do(background, func(ctx context.Context, tx Tx) error {
			return f.Exec(ctx, tx, "COMMIT")
		}), txlock.ErrLost)
		require.NotEqual(t, before, session(), "the connection was closed")
	}
	if e.Postgres { // a pooler may have given the server's session to another client by now
		require.ErrorIs(t, f.Locks.Mutex(f.Key("own")).Do(background, func(ctx context.Context, tx Tx) error {
			return f.Exec(ctx, tx, "COMMIT")
		}), txlock.ErrLost)
		if after := session(); !e.Pooled {
			require.NotEqual(t, before, after)
		}
	}
	f.Transactions(t, 0)
	require.NoError(t, held.Unlock(background))
	if f.Pool.InUse != nil {
		f.Unused(t)
		require.Equal(t, 1, f.Pool.Open())
	}
}

// errorsOfAllKinds misses what m locks, which another holds, and rows that are missing, and has
// work fail.
func errorsOfAllKinds[Tx any](t *testing.T, f *testbed.Fixture[Tx], m *txlock.Mutex[Tx], table string) {
	t.Helper()
	_, err := m.TryLock(background)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.ErrorIs(t, m.TryDo(background, func(context.Context, Tx) error { return nil }), txlock.ErrNotAcquired)
	// long enough to begin a transaction: a wait that is cut off before loses its connection
	brief := m.Within(3 * time.Second)
	_, err = brief.Lock(background)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.ErrorIs(t, brief.Do(background, func(context.Context, Tx) error { return nil }), txlock.ErrNotAcquired)
	_, err = f.Locks.Rows(table, "id", 1).Lock(background)
	require.ErrorIs(t, err, txlock.ErrNoRow)
	require.ErrorIs(t, f.Locks.Rows(table, "id", 1).Do(background, func(context.Context, Tx) error { return nil }),
		txlock.ErrNoRow)
	_, err = f.Locks.Rows(table+"_missing", "id", 1).Lock(background)
	require.Error(t, err)
	require.Equal(t, errWork, f.Locks.Mutex(f.Key("own")).Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		return errWork
	}))
}

// NestedWaitFarAway: the server ends the wait, and while its answer is on the way the client tries
// to interrupt it, for which the pool has no connection.
func NestedWaitFarAway[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	proxy, err := wire.Listen(e.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	f := testbed.NewSizedFixture(t, e, c, 1, proxy.Addr())
	holder := testbed.NewFixture(t, e, c)
	held, err := holder.Locks.Mutex(f.Key("held")).Lock(background)
	require.NoError(t, err)
	lock, err := f.Locks.Mutex(f.Key("mine")).Lock(background)
	require.NoError(t, err)
	proxy.Delay(100 * time.Millisecond)
	_, err = f.Locks.Mutex(f.Key("held")).Within(200 * time.Millisecond).Lock(lock.Context())
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.NoError(t, lock.Context().Err(), context.Cause(lock.Context()))
	require.NoError(t, lock.Unlock(background))
	require.NoError(t, held.Unlock(background))
}
