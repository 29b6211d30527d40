package txlock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
)

// promptly is how long after its end a wait may take to return here, beside everything else that runs on a test machine.
// On an idle machine it is a few milliseconds; see the benchmark.
const promptly = time.Second

// verbs are the four calls that wait, as functions of the context.
func (f *fixture[Tx]) verbs(t *testing.T, m *txlock.Mutex[Tx]) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Lock": func(ctx context.Context) error {
			lock, err := m.Lock(ctx)
			if err == nil {
				err = lock.Unlock(background)
			}
			return err
		},
		"Do": func(ctx context.Context) error {
			return m.Do(ctx, func(context.Context, Tx) error { return nil })
		},
		"LockTx": func(ctx context.Context) error {
			tx := f.begin(t, f.dsn(f.label, "", nil), 0)
			err := m.LockTx(ctx, tx)
			assert.NoError(t, f.exec(background, tx, "SELECT 1"), "the transaction is usable")
			assert.NoError(t, f.end(background, tx, false))
			return err
		},
		"nested Lock": func(ctx context.Context) error {
			outer, err := f.locks.Mutex(f.key("outer")).Lock(background)
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
			_, tried := f.locks.Mutex(f.key("outer")).TryLock(background)
			assert.ErrorIs(t, tried, txlock.ErrNotAcquired, "the outer lock is still held")
			if err == nil {
				assert.NoError(t, lock.Unlock(background))
			}
			assert.NoError(t, outer.Unlock(background))
			return err
		},
	}
}

func cancelledWait[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	m := f.locks.Mutex(f.key("wait"))
	holder, err := m.Lock(background)
	require.NoError(t, err)
	for name, wait := range f.verbs(t, m) {
		ctx, cancel := context.WithCancel(background)
		failed := make(chan error, 1)
		go func() { failed <- wait(ctx) }()
		f.waiters(t, 1)
		cancelled := time.Now()
		cancel()
		err := <-failed
		took := time.Since(cancelled)
		require.ErrorIs(t, err, txlock.ErrNotAcquired, name)
		require.ErrorIs(t, err, context.Canceled, name)
		require.Less(t, took, promptly, name)
		f.waiters(t, 0)
		require.Less(t, time.Since(cancelled), time.Second+200*time.Millisecond, name)
	}
	ctx, cancel := context.WithCancel(background)
	cancel()
	for name, wait := range f.verbs(t, m) {
		require.ErrorIs(t, wait(ctx), context.Canceled, name)
	}
	f.taken(t, f.key("wait"))
	require.NoError(t, holder.Unlock(background))
	f.free(t, f.key("wait"))
}

func deadlineOfContext[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	m := f.locks.Mutex(f.key("deadline"))
	ctx, cancel := context.WithTimeout(background, 300*time.Millisecond)
	defer cancel()
	holder, err := m.Lock(ctx)
	require.NoError(t, err)
	for name, wait := range f.verbs(t, m) {
		ctx, cancel := context.WithTimeout(background, 150*time.Millisecond)
		start := time.Now()
		err := wait(ctx)
		cancel()
		require.ErrorIs(t, err, txlock.ErrNotAcquired, name)
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.Less(t, time.Since(start), 150*time.Millisecond+promptly, name)
		f.waiters(t, 0)
	}
	<-ctx.Done()
	require.NoError(t, holder.Context().Err(), "the hold has no deadline")
	f.taken(t, f.key("deadline"))
	require.NoError(t, holder.Unlock(ctx))
}

func within[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	m := f.locks.Mutex(f.key("within"))
	holder, err := m.Lock(background)
	require.NoError(t, err)
	for name, wait := range f.verbs(t, m.Within(120*time.Millisecond)) {
		start := time.Now()
		err := wait(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired, name)
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.GreaterOrEqual(t, time.Since(start), 120*time.Millisecond, name)
		require.Less(t, time.Since(start), 120*time.Millisecond+promptly, name)
		f.waiters(t, 0)
	}
	require.NoError(t, holder.Unlock(background))
	for name, wait := range f.verbs(t, m.Within(10*time.Second)) {
		require.NoError(t, wait(background), name)
	}
	// The limit is on the wait: work may wait longer for other things afterwards.
	table := f.makeTable(t, "id int primary key")
	f.admitted(t, "INSERT INTO "+table+" VALUES (1)")
	if !e.postgres {
		return // the limit is on the statement there
	}
	blocker := f.begin(t, f.dsn("txlock_test_blocker", "", nil), 0)
	require.NoError(t, f.exec(background, blocker, "SELECT 1 FROM "+table+" FOR UPDATE"))
	done := make(chan error, 1)
	go func() {
		done <- m.Within(50*time.Millisecond).Do(background, func(ctx context.Context, tx Tx) error {
			return f.exec(ctx, tx, "UPDATE "+table+" SET id = 2")
		})
	}()
	f.waiters(t, 1)
	past := time.NewTimer(80 * time.Millisecond)
	<-past.C
	f.waiters(t, 1)
	require.NoError(t, f.end(background, blocker, false))
	require.NoError(t, <-done)
}

func middleWaiterLeaves[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	m := f.locks.Mutex(f.key("middle"))
	holder, err := m.Lock(background)
	require.NoError(t, err)
	got := make(chan *txlock.Lock, 1)
	leaving, leave := context.WithCancel(background)
	left := make(chan error, 1)
	go func() {
		_, err := m.Lock(leaving)
		left <- err
	}()
	f.waiters(t, 1)
	go func() {
		lock, err := m.Lock(background)
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	f.waiters(t, 2)
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	f.waiters(t, 1)
	select {
	case <-got:
		t.Fatal("the next waiter was let in early")
	default:
	}
	require.NoError(t, holder.Unlock(background))
	require.NoError(t, (<-got).Unlock(background))
}

func cancelRace[Tx any](t *testing.T, e *engine, c client[Tx]) {
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	f := newFixture(t, e, c)
	m := f.locks.Mutex(f.key("race"))
	won := 0
	for range rounds {
		holder, err := m.Lock(background)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(background)
		var together sync.WaitGroup
		together.Go(func() {
			lock, err := m.Lock(ctx)
			if err == nil {
				won++
				err = lock.Unlock(ctx)
			} else {
				assert.ErrorIs(t, err, context.Canceled)
				err = nil
			}
			assert.NoError(t, err)
		})
		// Chance is the point here: the cancel comes before, in, and after the grant.
		chance := func() <-chan time.Time { return time.After(time.Duration(rand.IntN(1000)) * time.Microsecond) }
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
	t.Logf("%d of %d waits won the race", won, rounds)
	f.free(t, f.key("race"))
	f.waiters(t, 0)
	f.transactions(t, 0)
	if f.pool.inUse != nil {
		eventually(t, "the pool has its connections back", f.pollEvery, func() bool { return f.pool.inUse() == 0 })
	}
}
