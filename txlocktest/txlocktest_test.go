package txlocktest_test

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/txlocktest"
)

var background = context.Background()

func TestMain(m *testing.M) { testbed.Main(m, servers.Newest(), servers.Postgres15) }

func TestKit(t *testing.T) {
	testbed.Lines(func(e *testbed.Engine, c testbed.Client[pgx.Tx]) {
		t.Run(e.Name+" "+c.Name, func(t *testing.T) { kit(t, e, c) })
	}, func(e *testbed.Engine, c testbed.Client[*sql.Tx]) {
		t.Run(e.Name+" "+c.Name, func(t *testing.T) { kit(t, e, c) })
	})
}

// patient gives the functions the time that the other tests have: the machine may be busy.
func patient(t testing.TB) testing.TB { return txlocktest.Within(t, eventually.Patience) }

func kit[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	beside := func(t *testing.T) { // MariaDB shows an old picture when several ask at the same time
		if !e.MariaDB {
			t.Parallel()
		}
	}
	beside(t)
	t.Run("waiters are counted at the server", func(t *testing.T) {
		beside(t)
		f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", txlock.WithQueue(6))
		keys := []string{f.Key("a"), f.Key("b")}
		release := txlocktest.Hold(patient(t), f.Locks, keys...)
		var group errgroup.Group
		for n := range 5 {
			group.Go(func() error {
				return f.Locks.Mutex(keys...).Do(background, func(context.Context, Tx) error { return nil })
			})
			txlocktest.Waiters(patient(t), f.Locks, n+1, keys...)
		}
		release()
		require.NoError(t, group.Wait())
		release()
	})
	t.Run("a session is lost", func(t *testing.T) {
		beside(t)
		f := testbed.NewFixture(t, e, c)
		key := f.Key("lost")
		release := txlocktest.Hold(patient(t), f.Locks, f.Key("other"))
		result := make(chan error, 1)
		go func() {
			result <- f.Locks.Mutex(key).Do(background, func(ctx context.Context, tx Tx) error {
				for f.Exec(ctx, tx, "SELECT 1") == nil { // on mysql.New nothing else tells of a loss
					time.Sleep(time.Millisecond)
				}
				return nil
			})
		}()
		txlocktest.Lose(patient(t), f.Locks, key)
		require.ErrorIs(t, <-result, txlock.ErrLost)
		txlocktest.Lose(patient(t), f.Locks, f.Key("other"))
		release()
	})
	t.Run("readers and permits are lost, and waited for", func(t *testing.T) {
		beside(t)
		f := testbed.NewFixture(t, e, c)
		key := f.Key("kinds")
		permit := f.Locks.Semaphore(key, 1)
		nextOf := map[*txlock.Mutex[Tx]]*txlock.Mutex[Tx]{permit: permit}
		if e.ListsHeld() { // MariaDB does not say which of several sessions share which rows
			nextOf[f.Locks.Mutex(key).Shared()] = f.Locks.Mutex(key)
		}
		for holder, next := range nextOf {
			lock := must.Get(holder.Lock(background))(t)
			waiter := make(chan error, 1)
			go func() {
				waiter <- next.Do(background, func(context.Context, Tx) error { return nil })
			}()
			txlocktest.Waiters(patient(t), f.Locks, 1, key)
			txlocktest.Lose(patient(t), f.Locks, key)
			require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
			require.NoError(t, <-waiter)
		}
	})
	t.Run("a claim expires", func(t *testing.T) {
		beside(t)
		f := testbed.NewFixture(t, e, c)
		key := f.OnceKey("seat", "claim:")
		held := must.Get(f.Locks.Claim(key).TryTake(background, "cart", time.Hour))(t)
		txlocktest.Expire(patient(t), f.Locks, key)
		require.ErrorIs(t, testbed.ErrorOf(held.Extend(background, time.Hour)), txlock.ErrLost)
	})
	t.Run("sections do not overlap under a lock", func(t *testing.T) {
		beside(t)
		f := testbed.NewFixture(t, e, c)
		txlocktest.Overlap(patient(t), 5, func(ctx context.Context, enter func() func()) error {
			return f.Locks.Mutex(f.Key("section")).Do(ctx, func(context.Context, Tx) error {
				enter()()
				return nil
			})
		})
	})
}

// TestKitFailsTests shows that each function fails the test that deserves it.
func TestKitFailsTests(t *testing.T) {
	e := testbed.Engines[0]
	c := testbed.PgxOpened()
	f := testbed.NewSizedFixture(t, e, c, 2, "")
	key := f.Key("wrong")
	var group errgroup.Group
	fails := func(text string, test func(t testing.TB)) {
		group.Go(func() error {
			said, failed := recorded(t, test)
			if !failed || !strings.Contains(said, text) {
				return fmt.Errorf("failed is %v, and it said %q, not %q", failed, said, text)
			}
			return nil
		})
	}
	fails("nobody holds any of them", func(t testing.TB) { txlocktest.Waiters(t, f.Locks, 1, f.Key("free")) })
	fails("nobody who holds", func(t testing.TB) { txlocktest.Lose(t, f.Locks, f.Key("free")) })
	fails("a key is empty", func(t testing.TB) { txlocktest.Hold(t, f.Locks, "") })
	fails("3 of 3 sections were inside together", func(t testing.TB) {
		var all atomic.Int64
		txlocktest.Overlap(t, 3, func(ctx context.Context, enter func() func()) error {
			leave := enter()
			for all.Add(1); all.Load() < 3 && ctx.Err() == nil; {
				runtime.Gosched()
			}
			leave()
			return nil
		})
	})
	fails("no section has called enter", func(t testing.TB) {
		txlocktest.Overlap(t, 3, func(context.Context, func() func()) error { return nil })
	})
	require.NoError(t, group.Wait())

	crowd := testbed.NewSizedFixture(t, e, c, 6, "", txlock.WithQueue(3))
	keys := []string{crowd.Key("a"), crowd.Key("b")}
	release := txlocktest.Hold(t, crowd.Locks, keys...)
	var waiters errgroup.Group
	for range 2 { // both of them for two keys
		waiters.Go(func() error {
			return crowd.Locks.Mutex(keys...).Do(background, func(context.Context, pgx.Tx) error { return nil })
		})
	}
	txlocktest.Waiters(t, crowd.Locks, 2, keys...)
	fails("2 sessions wait", func(t testing.TB) { txlocktest.Waiters(t, crowd.Locks, 3, keys...) })
	require.NoError(t, group.Wait())
	release()
	require.NoError(t, waiters.Wait())

	txlocktest.Hold(t, f.Locks, key)
	fails("held by session", func(t testing.TB) { txlocktest.Hold(t, f.Locks, key) })
	require.NoError(t, group.Wait())
	fails("sections failed", func(t testing.TB) {
		txlocktest.Hold(t, f.Locks, f.Key("second"))
		txlocktest.Overlap(t, 1, func(ctx context.Context, enter func() func()) error {
			return f.Locks.Mutex(f.Key("third")).Do(ctx, func(context.Context, pgx.Tx) error { return nil })
		})
	})
	require.NoError(t, group.Wait())
}

// recorded runs a test that may fail.
func recorded(t *testing.T, test func(t testing.TB)) (said string, failed bool) {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := len(r.cleanups); i > 0; i-- {
				r.cleanups[i-1]()
			}
		}()
		test(txlocktest.Within(r, 2*time.Second))
	}()
	<-done
	return r.said.String(), r.failed
}

type recorder struct {
	testing.TB
	said     strings.Builder
	failed   bool
	cleanups []func()
}

func (r *recorder) Helper()                {}
func (r *recorder) Cleanup(cleanup func()) { r.cleanups = append(r.cleanups, cleanup) }

func (r *recorder) Errorf(format string, args ...any) {
	r.failed = true
	fmt.Fprintf(&r.said, format, args...)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}
