package guarantees

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/wire"
)

// Unlock shows that Unlock works on a cancelled context, once.
func Unlock[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	ctx, cancel := context.WithCancel(background)
	lock := testbed.LockIn(t, ctx, f.Locks.Mutex(f.Key("unlock")))
	require.Zero(t, lock.Token())
	cancel()
	require.NoError(t, lock.Context().Err(), "the hold does not end with the context of the wait")
	require.NoError(t, lock.Unlock(ctx))
	require.ErrorIs(t, lock.Context().Err(), context.Canceled)

	next := testbed.Lock(t, f.Locks.Mutex(f.Key("unlock")))
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrNotHeld)
	f.Taken(t, f.Key("unlock")) // the second Unlock did not harm the next holder
	testbed.Unlock(t, next)
}

// FullPool shows that a full pool is an error in time.
func FullPool[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 2, "")
	var locks []*txlock.Lock
	for _, name := range []string{"1", "2"} {
		lock := testbed.Lock(t, f.Locks.Mutex(f.Key(name)))
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
			testbed.ErrorIs(t, err, txlock.ErrNotAcquired, context.DeadlineExceeded)
			require.ErrorContains(t, err, "2 of 2 are in use")
			err = answer(t, func() error { _, err := m.TryLock(ctx); return err })
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return 3 * (time.Since(start) - limit) // in a third of promptly: nobody is asked who holds it
		})
	}
	// A cancelled waiter in a full pool returns at once as well, though no connection is left for
	// an interrupt.
	testbed.Unlock(t, locks[1])
	endsPromptly(t, "cancelled", func() time.Duration {
		ctx, cancel := context.WithCancel(background)
		failed := testbed.Go(func() error { _, err := f.Locks.Mutex(f.Key("1")).Lock(ctx); return err })
		f.Waiters(t, 1)
		cancelled := time.Now()
		cancel()
		require.ErrorIs(t, testbed.Receive(t, failed), context.Canceled)
		late := time.Since(cancelled)
		f.Waiters(t, 0)
		return late
	})
	testbed.Unlock(t, locks[0])
	f.Free(t, f.Key("1"))

	// The limit is also that of the look for the lock table, which Rows need not know.
	one := testbed.NewSizedFixture(t, e, c, 1, "")
	table := one.MakeTable(t, "id int primary key", "(1)")
	lock := testbed.Lock(t, one.Locks.Rows(table, "id", 1))
	once := one.Locks.Once(one.OnceKey("once", "once:")).Within(time.Second)
	endsPromptly(t, "Forget", func() time.Duration {
		begun := time.Now()
		err := answer(t, func() error { return once.Forget(background) })
		late := time.Since(begun) - time.Second
		testbed.ErrorIs(t, err, txlock.ErrNotAcquired, context.DeadlineExceeded)
		return late
	})
	_, err := one.Locks.Mutex(one.Key("a")).Lock(lock.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "call Install or Check at start")
	testbed.Unlock(t, lock)

	// A Check that finds no connection forgets no lock table.
	require.NoError(t, one.Locks.Mutex(one.Key("a")).Do(background, func(ctx context.Context, _ Tx) error {
		brief, cancel := context.WithTimeout(background, 100*time.Millisecond)
		defer cancel()
		if one.Locks.Check(brief) == nil {
			return errors.New("it has found one")
		}
		nested, err := one.Locks.Mutex(one.Key("b")).Lock(ctx)
		if err != nil {
			return err
		}
		return nested.Unlock(ctx)
	}))
}

// CleanPool shows that after any error the pool has its connections back, clean.
func CleanPool[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 1, "")
	holder := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
	held := testbed.Lock(t, holder.Locks.Mutex(f.Key("held")))
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
	// What ended the transaction may have left a lock of the session's. A pooler may have given the
	// server's session to another client by now.
	require.ErrorIs(t, f.Locks.Mutex(f.Key("own")).Do(background, func(ctx context.Context, tx Tx) error {
		return f.Exec(ctx, tx, "COMMIT")
	}), txlock.ErrLost)
	if after := session(); !e.Pooled {
		require.NotEqual(t, before, after, "the connection was closed")
	}
	f.Transactions(t, 0)
	testbed.Unlock(t, held)
	if f.Pool.InUse != nil {
		f.Unused(t)
		require.Equal(t, 1, f.Pool.Open())
	}
}

// errorsOfAllKinds misses what m locks, which another holds, and rows that are missing, and has
// work fail.
func errorsOfAllKinds[Tx any](t *testing.T, f *testbed.Fixture[Tx], m *txlock.Mutex[Tx], table string) {
	t.Helper()
	testbed.Misses(t, m)
	require.ErrorIs(t, m.TryDo(background, idle[Tx]), txlock.ErrNotAcquired)
	// long enough to begin a transaction: a wait that is cut off before loses its connection
	brief := m.Within(3 * time.Second)
	require.ErrorIs(t, testbed.ErrorOf(brief.Lock(background)), txlock.ErrNotAcquired)
	require.ErrorIs(t, brief.Do(background, idle[Tx]), txlock.ErrNotAcquired)
	require.ErrorIs(t, testbed.ErrorOf(f.Locks.Rows(table, "id", 1).Lock(background)), txlock.ErrNoRow)
	require.ErrorIs(t, f.Locks.Rows(table, "id", 1).Do(background, idle[Tx]), txlock.ErrNoRow)
	require.Error(t, testbed.ErrorOf(f.Locks.Rows(table+"_missing", "id", 1).Lock(background)))
	require.Equal(t, errWork, f.Locks.Mutex(f.Key("own")).Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		return errWork
	}))
}

// CancelledFarAway cancels a wait in a transaction that holds other locks. The pool has no second
// connection open for the interrupt, and the server is so far away that opening one takes a while.
func CancelledFarAway[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	holder := testbed.NewFixture(t, e, c)
	held := testbed.Lock(t, holder.Locks.Mutex(holder.Key("held")))
	for _, guest := range []bool{false, true} {
		f, proxy := testbed.Proxied(t, e, c, testbed.PoolSize)
		outer := must.Get(f.Locks.Mutex(f.Key("outer")).Lock(background))(t) // in the one connection that is open
		tx := f.Guest(t)
		proxy.Delay(30 * time.Millisecond)
		from := outer.Context()
		if guest {
			from = background
		}
		waiting, cancel := context.WithCancel(from)
		failed := testbed.Go(func() error {
			m := f.Locks.Mutex(holder.Key("held"))
			if guest {
				return m.LockTx(waiting, tx)
			}
			return testbed.ErrorOf(m.Lock(waiting))
		})
		f.Waiters(t, 1)
		cancel()
		err := testbed.Receive(t, failed)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, txlock.ErrLost)
		require.NoError(t, f.Locks.Mutex(f.Key("guest")).LockTx(background, tx), "the transaction is usable")
		require.NoError(t, f.End(background, tx, true))
		require.NoError(t, outer.Context().Err(), context.Cause(outer.Context()))
		testbed.Unlock(t, outer)
		f.Waiters(t, 0)
	}
	testbed.Unlock(t, held)
}

// LimitFarAway shows that a limit on a wait costs no transaction, however far away the server is.
// That ends the wait by itself, and while its answer is on the way, the pool has no connection for
// an interrupt.
func LimitFarAway[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, proxy := testbed.Proxied(t, e, c, 1)
	holder := testbed.NewFixture(t, e, c)
	held := testbed.Lock(t, holder.Locks.Mutex(f.Key("held")))
	lock := testbed.Lock(t, f.Locks.Mutex(f.Key("mine")))
	proxy.Delay(100 * time.Millisecond)
	_, err := f.Locks.Mutex(f.Key("held")).Within(200 * time.Millisecond).Lock(lock.Context())
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.NoError(t, lock.Context().Err(), context.Cause(lock.Context()))
	testbed.Unlock(t, lock)
	proxy.Delay(0)
	if onSQL, ok := any(f).(*testbed.Fixture[*sql.Tx]); ok && f.Pool.DB != nil {
		limitOfGuestFarAway(t, onSQL, proxy)
	}
	testbed.Unlock(t, held)
}

// limitOfGuestFarAway is the same in a caller's transaction, which has the pool's only connection.
func limitOfGuestFarAway(t *testing.T, f *testbed.Fixture[*sql.Tx], proxy *wire.Proxy) {
	tx := must.Get(f.Pool.DB.BeginTx(background, nil))(t)
	t.Cleanup(func() { _ = tx.Rollback() }) // of a test that failed
	// Prepares the statements of the wait, too.
	require.NoError(t, f.Locks.Mutex(f.Key("own")).Within(time.Minute).LockTx(background, tx))
	proxy.Delay(100 * time.Millisecond)
	// Long enough for the trips before the wait.
	err := f.Locks.Mutex(f.Key("held")).Within(1200*time.Millisecond).LockTx(background, tx)
	testbed.ErrorIs(t, err, txlock.ErrNotAcquired, context.DeadlineExceeded)
	require.NotErrorIs(t, err, txlock.ErrLost)
	proxy.Delay(0)
	require.NoError(t, f.Exec(background, tx, "SELECT 1"), "the transaction is usable")
	require.NoError(t, f.End(background, tx, true))
}

// TwoTrips shows that a lock is two round trips on a pool of the library's own, also on a
// connection that was idle for long.
func TwoTrips[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	if !strings.HasSuffix(c.Name, ".Open") || runtime.GOOS != "linux" {
		t.Skip("on a caller's pool, and where the kernel does not show a dead connection, that is pinged")
	}
	proxy, err := wire.Listen(e.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	f := testbed.NewSizedFixture(t, e, c, 1, proxy.Addr())
	m := f.Locks.Mutex(f.Key("k"))
	testbed.Unlock(t, testbed.Lock(t, m)) // connects, and prepares
	time.Sleep(1100 * time.Millisecond)   // pgxpool pings what was idle for a second
	before := proxy.Bursts()
	testbed.Unlock(t, testbed.Lock(t, m))
	require.Equal(t, before+2, proxy.Bursts())
}

// BeginTogether shows that callers that begin together do not all look the lock table up.
func BeginTogether[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	driver, p := c.Connect(t, e.DSNFor(f.Label, "", nil), 8)
	t.Cleanup(func() { p.Close() })
	counted := &sender[Tx]{Driver: driver}
	locks := txlock.New(counted, txlock.WithTable(e.Table()))
	const callers, most = 200, 4
	var group errgroup.Group
	for range callers {
		group.Go(func() error { return locks.Ping(background) })
	}
	require.NoError(t, group.Wait())
	require.NoError(t, locks.Close())
	require.LessOrEqual(t, len(counted.times(0)), callers+most)
}

// SilentLookUps shows that callers whose look-ups get no answer do not keep others from theirs.
func SilentLookUps[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	proxy, err := wire.Listen(e.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	driver, p := c.Connect(t, e.DSNFor(f.Label, proxy.Addr(), nil), 8)
	t.Cleanup(func() { p.Close() })
	proxy.Behave(wire.Network{Drop: true})
	counted := &sender[Tx]{Driver: driver}
	locks := txlock.New(counted, txlock.WithTable(e.Table()))
	ctx, cancel := context.WithCancel(background)
	const callers = 6
	var group errgroup.Group
	for range callers {
		group.Go(func() error { return locks.Ping(ctx) })
	}
	eventually.True(t, "all have asked", func() bool { return len(counted.times(0)) == callers })
	cancel()
	require.ErrorIs(t, group.Wait(), context.Canceled)
	proxy.Behave(wire.Network{}) // closes the connections
	require.NoError(t, locks.Close())
}
