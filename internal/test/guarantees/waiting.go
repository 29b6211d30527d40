package guarantees

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/tier"
)

// promptly is how long a wait that has ended may take to return on a busy test machine. On an idle
// machine it takes a few milliseconds: see the benchmark. After two seconds a wait that nothing has
// ended has its connection closed, which must not pass for this.
const promptly = 3 * time.Second / 2

// endsPromptly ends waits of one kind until one returns promptly, three times at most. Each says
// how late it returned. A machine that stalls makes one of them late, a slow Locker all of them.
func endsPromptly(t *testing.T, kind string, late func() time.Duration) {
	t.Helper()
	fastest := time.Duration(math.MaxInt64)
	for round := 0; round < 3 && fastest >= promptly; round++ {
		fastest = min(fastest, late())
	}
	require.Less(t, fastest, promptly, kind)
}

// answer waits for what call returns, much longer than that may take, so that a call that never
// returns fails one test and not the whole run. The call must not use t, which may have ended by
// then.
func answer(t *testing.T, call func() error) error {
	t.Helper()
	answered := testbed.Go(call)
	return testbed.Receive(t, answered)
}

// verbs are the four calls that wait, as functions of the context. Their goroutines may outlive a
// failed test.
func verbs[Tx any](f *testbed.Fixture[Tx], m *txlock.Mutex[Tx]) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Lock": func(ctx context.Context) error { return testbed.Cycle(ctx, m) },
		"Do":   func(ctx context.Context) error { return m.Do(ctx, idle[Tx]) },
		"LockTx": func(ctx context.Context) error {
			tx, leave, err := f.Start(f.DSNFor(f.Label, "", nil), 0)
			if err != nil {
				return err
			}
			defer leave()
			err = m.LockTx(ctx, tx)
			return orSpoiled(err, errors.Join(f.Exec(background, tx, "SELECT 1"), f.End(background, tx, false)))
		},
		"nested Lock": func(ctx context.Context) error {
			outer, err := f.Locks.Mutex(f.Key("outer")).Lock(background)
			if err != nil {
				return err
			}
			inner, cancel := context.WithCancelCause(outer.Context())
			defer cancel(nil)
			defer context.AfterFunc(ctx, func() {
				if ctx.Err() == context.Canceled {
					cancel(nil)
				}
			})()
			if deadline, ok := ctx.Deadline(); ok {
				var stop context.CancelFunc
				inner, stop = context.WithDeadline(inner, deadline)
				defer stop()
			}
			lock, err := m.Lock(inner)
			_, tried := f.Locks.Mutex(f.Key("outer")).TryLock(background)
			var spoiled error
			if !errors.Is(tried, txlock.ErrNotAcquired) {
				spoiled = fmt.Errorf("the outer lock is not held: a try's error is %v", tried)
			}
			if err == nil {
				spoiled = errors.Join(spoiled, lock.Unlock(background))
			}
			return orSpoiled(err, errors.Join(spoiled, outer.Unlock(background)))
		},
	}
}

// orSpoiled returns the error of a wait. If the wait has spoiled the session around it, it returns
// an error that matches nothing a test expects.
func orSpoiled(err, spoiled error) error {
	if spoiled != nil {
		return fmt.Errorf("a wait that ended with %v has spoiled what was around it: %v", err, spoiled)
	}
	return err
}

// CancelledWait shows that a cancelled wait ends at once and leaves the queue.
func CancelledWait[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	m := f.Locks.Mutex(f.Key("wait"))
	holder := testbed.Lock(t, m)
	for name, wait := range verbs(f, m) {
		endsPromptly(t, name, func() time.Duration {
			ctx, cancel := context.WithCancelCause(background)
			failed := testbed.Go(func() error { return wait(ctx) })
			f.Waiters(t, 1)
			cancelled := time.Now()
			cancel(txlock.ErrClosed) // of another Locker, as the end of a Lock's context is
			err := testbed.Receive(t, failed)
			late := time.Since(cancelled)
			require.ErrorIs(t, err, txlock.ErrNotAcquired, name)
			require.ErrorIs(t, err, context.Canceled, name)
			require.NotErrorIs(t, err, txlock.ErrClosed, name)
			f.Waiters(t, 0) // at once, not when its turn in the queue comes
			return late
		})
	}
	ctx, cancel := context.WithCancel(background)
	cancel()
	for name, wait := range verbs(f, m) {
		require.ErrorIs(t, wait(ctx), context.Canceled, name)
	}
	f.Taken(t, f.Key("wait"))
	testbed.Unlock(t, holder)
	f.Free(t, f.Key("wait"))
}

// DeadlineOfContext shows that a deadline of the context ends the wait and not the hold.
func DeadlineOfContext[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	m := f.Locks.Mutex(f.Key("deadline"))
	f.Free(t, f.Key("deadline")) // connects and reads the number of slots, which may take longer than the limits below
	ctx, cancel := context.WithTimeout(background, 4*time.Second)
	defer cancel()
	holder := testbed.LockIn(t, ctx, m)
	for name, wait := range verbs(f, m) {
		endsPromptly(t, name, func() time.Duration {
			const limit = 150 * time.Millisecond
			ctx, cancel := context.WithTimeout(background, limit)
			defer cancel()
			start := time.Now()
			err := answer(t, func() error { return wait(ctx) })
			late := time.Since(start) - limit
			require.ErrorIs(t, err, txlock.ErrNotAcquired, name)
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			f.Waiters(t, 0)
			return late
		})
	}
	<-ctx.Done()
	require.NoError(t, holder.Context().Err(), "the hold has no deadline")
	f.Taken(t, f.Key("deadline"))
	require.NoError(t, holder.Unlock(ctx))
}

// Within shows that Within ends the wait, for every verb.
func Within[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	m := f.Locks.Mutex(f.Key("within"))
	holder := testbed.Lock(t, m)
	const brief = 120 * time.Millisecond
	for name, wait := range verbs(f, m.Within(brief)) {
		endsPromptly(t, name, func() time.Duration {
			start := time.Now()
			err := answer(t, func() error { return wait(background) })
			took := time.Since(start)
			require.ErrorIs(t, err, txlock.ErrNotAcquired, name)
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.GreaterOrEqual(t, took, brief, name)
			f.Waiters(t, 0)
			return took - brief
		})
	}
	testbed.Unlock(t, holder)
	for name, wait := range verbs(f, m.Within(10*time.Second)) {
		require.NoError(t, wait(background), name)
	}
	// The limit is on the wait for the lock: the work may wait longer for other rows.
	table := f.MakeTable(t, "id int primary key", "(1)")
	if !e.Postgres {
		return // there the limit is on the statement
	}
	blocker := f.Guest(t)
	require.NoError(t, f.Exec(background, blocker, "SELECT 1 FROM "+table+" FOR UPDATE"))
	const limit = 2 * time.Second // long enough to get the lock, which is free
	done := testbed.Go(func() error {
		return m.Within(limit).Do(background, func(ctx context.Context, tx Tx) error {
			return f.Exec(ctx, tx, "UPDATE "+table+" SET id = 2")
		})
	})
	f.Waiters(t, 1)
	select {
	case err := <-done:
		require.Fail(t, "the work ended", "%v", err)
	case <-time.After(limit + 50*time.Millisecond): // a limit on the work's statement would be over
	}
	f.Waiters(t, 1)
	require.NoError(t, f.End(background, blocker, false))
	require.NoError(t, testbed.Receive(t, done))
}

// MiddleWaiterLeaves shows that a waiter that gives up does not disturb the next one.
func MiddleWaiterLeaves[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	m := f.Locks.Mutex(f.Key("middle"))
	holder := testbed.Lock(t, m)
	leaving, leave := context.WithCancel(background)
	left := testbed.Go(func() error { _, err := m.Lock(leaving); return err })
	f.Waiters(t, 1)
	got := testbed.Granted(t, m)
	f.Waiters(t, 2)
	leave()
	require.ErrorIs(t, testbed.Receive(t, left), context.Canceled)
	f.Waiters(t, 1)
	require.Empty(t, got, "the next waiter was let in early")
	testbed.Unlock(t, holder)
	require.NoError(t, testbed.Receive(t, got).Unlock(background))
}

// CancelRace shows that a cancel that races with the grant leaks nothing.
func CancelRace[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	rounds := tier.Pick(50, 200, 1000)
	if e.Pgpool { // a cancel takes a second
		rounds = 20
	}
	f := testbed.NewFixture(t, e, c)
	m := f.Locks.Mutex(f.Key("race"))
	won := 0
	for range rounds {
		holder := testbed.Lock(t, m)
		ctx, cancel := context.WithCancel(background)
		race(t, holder, cancel, func() {
			lock, err := m.Lock(ctx)
			if err == nil {
				won++
				err = lock.Unlock(ctx)
			} else {
				assert.ErrorIs(t, err, context.Canceled)
				err = nil
			}
			assert.NoError(t, err)
		}, time.Millisecond)
	}
	t.Logf("%d of %d waits won the race", won, rounds)
	f.Waiters(t, 0)
	f.Transactions(t, 0) // the server may notice a closed connection a little later
	f.Free(t, f.Key("race"))
	f.Unused(t)
}

// race calls wait, and cancel and Unlock at random times, on purpose: the cancel comes before,
// during and after the grant.
func race(t *testing.T, holder *txlock.Lock, cancel func(), wait func(), within time.Duration) {
	t.Helper()
	var together sync.WaitGroup
	together.Go(wait)
	chance := func() <-chan time.Time { return time.After(rand.N(within)) }
	together.Go(func() {
		<-chance()
		cancel()
	})
	together.Go(func() {
		<-chance()
		assert.NoError(t, holder.Unlock(background))
	})
	together.Wait()
}

// GuestCancelRace shows that a cancel that races with a LockTx leaves the transaction usable: also
// one that comes before the wait has begun.
func GuestCancelRace[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	rounds := tier.Pick(50, 100, 200)
	if e.Pgpool { // a cancel takes a second
		rounds = 20
	}
	f, table := testbed.NewTable(t, e, c, "id int primary key")
	m := f.Locks.Mutex(f.Key("race"))
	tx, won := f.Guest(t), 0
	for range rounds {
		holder := testbed.Lock(t, m)
		ctx, cancel := context.WithCancel(background)
		var err error
		race(t, holder, cancel, func() { err = m.LockTx(ctx, tx) },
			10*time.Millisecond) // on PostgreSQL, no cancel is sent for some of them
		require.NoError(t, f.Exec(background, tx, "SELECT COUNT(*) FROM "+table), "after %v", err)
		if err == nil {
			won++
		} else if require.ErrorIs(t, err, context.Canceled); e.Postgres {
			continue
		} // InnoDB keeps the row of a statement that was killed just behind its grant
		require.NoError(t, f.End(background, tx, true))
		tx = f.Guest(t)
	}
	t.Logf("%d of %d waits won the race", won, rounds)
	require.NoError(t, f.End(background, tx, true))
	f.Free(t, f.Key("race"))
}
