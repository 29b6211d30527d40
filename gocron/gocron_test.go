package txlockgocron_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/txlock/txlock"
	txlockgocron "github.com/txlock/txlock/gocron"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/leaks"
	"github.com/txlock/txlock/internal/test/must"
)

// A job that is over before the next instance fires still runs once per tick. The instances may
// fire together, or half an interval apart. The instance that keeps the lock loses no tick.
func TestOncePerTick(t *testing.T) {
	const ticks = 4
	for name, when := range map[string]func() gocron.JobDefinition{ // gocron changes it, so each job needs its own
		"together": everyMinute,
		"shifted":  func() gocron.JobDefinition { return gocron.DurationJob(interval) },
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, e *engine) {
				first, second := e.start(t, txlockgocron.WithLockAtLeastFor(time.Hour)),
					e.start(t, txlockgocron.WithLockAtLeastFor(time.Hour))
				second.clock.Advance(interval / 2)
				job := first.label
				require.NoError(t, first.add(job, when()))
				require.NoError(t, second.add(job, when()))
				first.clock.Advance(time.Second)
				second.clock.Advance(time.Second)
				for range ticks {
					first.ran(t)
					second.missed(t)
				}
				runs, at := e.runs(t, job)
				require.Equal(t, ticks, runs)
				require.Equal(t, ticks, at)
				require.Empty(t, second.log.String(), "that another instance runs a job is not logged")
			})
		})
	}
}

// When the minimum is over, the next tick belongs to the instance that fires first.
func TestMinimumEnds(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		const minimum = 6 * time.Second // a call may take half of it, and both fire within it
		first, second := e.start(t, txlockgocron.WithLockAtLeastFor(minimum)),
			e.start(t, txlockgocron.WithLockAtLeastFor(minimum))
		job := first.label
		require.NoError(t, first.add(job, everyMinute()))
		require.NoError(t, second.add(job, everyMinute()))
		for range 2 {
			began := time.Now()
			first.ran(t)
			second.missed(t)
			e.transactions(t, first.label, 0)
			require.GreaterOrEqual(t, time.Since(began), minimum)
			first, second = second, first
		}
		runs, ticks := e.runs(t, job)
		require.Equal(t, 2, runs)
		require.Equal(t, 2, ticks)
	})
}

// A job that takes longer than the minimum excludes others as long as it runs, and no longer. That
// includes runs on its own instance.
func TestLongJob(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		const minimum = 6 * time.Second // a call may take half of it
		first, second := e.start(t, txlockgocron.WithLockAtLeastFor(minimum)),
			e.start(t, txlockgocron.WithLockAtLeastFor(minimum))
		job, running, finish := first.label, make(chan time.Time, 1), make(chan struct{})
		require.NoError(t, first.add(job, everyMinute(), func(context.Context) {
			running <- time.Now()
			<-finish
		}))
		require.NoError(t, second.add(job, everyMinute()))
		require.NoError(t, first.tick())
		began := receive(t, running)
		second.missed(t)
		first.missed(t)
		<-time.After(time.Until(began.Add(minimum)))
		second.missed(t)
		close(finish)
		require.Equal(t, outcome{}, first.outcome(t))
		second.ran(t)
	})
}

// gocron removes a one-time job after its run here, and ends its context. Another instance may fire
// later.
func TestOneTimeJob(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		first, second := e.start(t), e.start(t)
		job := first.label
		for _, i := range []*instance{first, second} {
			once := gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(noon.Add(interval)))
			_, err := i.scheduler.NewJob(once, gocron.NewTask(func() {}), gocron.WithName(job),
				gocron.WithLimitedRuns(1))
			require.NoError(t, err)
		}
		first.ran(t)
		eventually.True(t, "the job is removed", func() bool { return len(first.scheduler.Jobs()) == 0 })
		second.missed(t)
	})
}

// A job whose interval equals the minimum fires just when its lock is being released.
func TestTickDuringRelease(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		i := e.start(t)
		held, err := i.locker.Lock(t.Context(), i.label)
		require.NoError(t, err)
		released := sync.OnceFunc(i.locker.Leave(i.label))
		defer released() // otherwise Close waits
		second := make(chan outcome, 1)
		go func() {
			lock, err := i.locker.Lock(context.Background(), i.label)
			if err == nil {
				err = lock.Unlock(context.Background())
			}
			second <- outcome{missed: err}
		}()
		select {
		case o := <-second:
			require.Fail(t, "Lock did not wait", "%v", o)
		case <-time.After(300 * time.Millisecond):
		}
		require.NoError(t, i.locker.Drop(held))
		released()
		require.Equal(t, outcome{}, receive(t, second))
	})
}

// The sessions of an instance end while its job runs. The job learns of it, and the other instance
// runs the job from its next tick on.
func TestLostWhileRunning(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		first, second := e.start(t), e.start(t)
		job, running, told := first.label, make(chan struct{}, 1), make(chan error, 1)
		require.NoError(t, first.add(job, everyMinute(), func(ctx context.Context) {
			ctx = first.locker.Context(ctx, job)
			running <- struct{}{}
			<-ctx.Done()
			told <- context.Cause(ctx)
		}))
		require.NoError(t, second.add(job, everyMinute()))
		require.NoError(t, first.tick())
		receive(t, running)
		second.missed(t)
		e.killSessions(t, first.label)
		require.ErrorIs(t, receive(t, told), txlock.ErrLost)
		require.ErrorIs(t, first.outcome(t).unlocked, txlock.ErrLost)
		eventually.True(t, "the loss is in the log", func() bool {
			return strings.Contains(first.log.String(), "lost its lock while it runs")
		})
		second.takesOver(t)
		first.missed(t)
	})
}

// The sessions end while the lock of a finished job is kept.
func TestLostWhileKept(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		first, second := e.start(t, txlockgocron.WithLockAtLeastFor(time.Hour)),
			e.start(t, txlockgocron.WithLockAtLeastFor(time.Hour))
		require.NoError(t, first.add(first.label, everyMinute()))
		require.NoError(t, second.add(first.label, everyMinute()))
		first.ran(t)
		e.killSessions(t, first.label)
		eventually.True(t, "the loss is in the log", func() bool { return first.log.String() != "" })
		require.Contains(t, first.log.String(), "lost before its minimum time was over")
		second.takesOver(t)
		first.missed(t)
		second.ran(t)
	})
}

// The context of a job ends with its run, and carries the values of gocron's context. If the job
// does not run here, it has already ended.
func TestContext(t *testing.T) {
	t.Parallel()
	i := engines[0].start(t)
	within := make(chan context.Context, 1)
	require.NoError(t, i.add(i.label, everyMinute(), func(ctx context.Context) {
		type key struct{}
		ctx = i.locker.Context(context.WithValue(ctx, key{}, true), i.label)
		if ctx.Err() == nil && ctx.Value(key{}) == true {
			within <- ctx
		}
	}))
	require.NoError(t, i.tick())
	ended := receive(t, within)
	receive(t, ended.Done())
	require.Equal(t, context.Canceled, context.Cause(ended))
	i.outcome(t)
	require.ErrorIs(t, context.Cause(i.locker.Context(t.Context(), i.label)), txlock.ErrNotHeld)
	require.ErrorIs(t, context.Cause(i.locker.Context(t.Context(), "another")), txlock.ErrNotHeld)
}

// A shutdown releases what is kept, both on the server and in this process.
func TestShutdown(t *testing.T) { // not parallel: it looks at all goroutines
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) {
			second := e.start(t)
			before := goleak.IgnoreCurrent()
			first := must.Get(e.connect(newLabel(), 0, txlockgocron.WithLockAtLeastFor(time.Hour)))(t)
			require.NoError(t, first.schedule(gocron.WithDistributedLocker(observed{first})))
			job := first.label
			require.NoError(t, first.add(job, everyMinute()))
			require.NoError(t, first.add(job+" too", gocron.DurationJob(interval)))
			require.NoError(t, second.add(job, everyMinute()))
			require.NoError(t, first.clock.BlockUntilContext(t.Context(), 2))
			first.clock.Advance(interval)
			require.Equal(t, outcome{}, first.outcome(t))
			require.Equal(t, outcome{}, first.outcome(t))
			second.missed(t)
			e.transactions(t, first.label, 2)

			require.NoError(t, first.scheduler.Shutdown())
			e.transactions(t, first.label, 2)
			require.NoError(t, first.locker.Close())
			e.transactions(t, first.label, 0)
			require.NoError(t, first.close())
			require.NoError(t, leaks.FindBesidesPools(before))
			second.ran(t) // not earlier, because a held lock has goroutines
			require.Empty(t, first.log.String())
		})
	}
}

// A job that runs when the Locker is closed goes on under its lock, which is released when the job
// ends. Later jobs do not run.
func TestCloseWhileRunning(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		first, second := e.start(t, txlockgocron.WithLockAtLeastFor(time.Hour)), e.start(t)
		lock := must.Get(first.locker.Lock(t.Context(), first.label))(t)
		require.NoError(t, first.locker.Close())
		require.NoError(t, first.locker.Close())
		_, err := second.locker.Lock(t.Context(), first.label)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		_, err = first.locker.Lock(t.Context(), first.label+"another")
		require.ErrorContains(t, err, "closed")
		require.NoError(t, lock.Unlock(t.Context()))
		e.transactions(t, first.label, 0)
	})
}

// A second Unlock does no harm, even if the first one kept the lock and another run has it now. An
// ended context prevents neither releasing nor keeping.
func TestUnlock(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		for _, minimum := range []time.Duration{0, time.Hour} {
			i := e.start(t, txlockgocron.WithLockAtLeastFor(minimum))
			ctx, cancel := context.WithCancel(t.Context())
			lock := must.Get(i.locker.Lock(ctx, i.label))(t)
			cancel()
			require.NoError(t, lock.Unlock(ctx))
			if minimum > 0 {
				_, err := e.start(t).locker.Lock(t.Context(), i.label)
				require.ErrorIs(t, err, txlock.ErrNotAcquired)
			}
			again := must.Get(i.locker.Lock(t.Context(), i.label))(t)
			require.ErrorIs(t, lock.Unlock(t.Context()), txlock.ErrNotHeld)
			_, err := i.locker.Lock(t.Context(), i.label)
			require.ErrorIs(t, err, txlock.ErrNotAcquired)
			require.NoError(t, again.Unlock(t.Context()))
		}
	})
}

// A job without a connection is left out within half the minimum. Later, another instance might
// have stopped keeping the lock. The log reports it.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	const minimum = 10 * time.Second // half of it leaves time for a late answer
	i := must.Get(engines[0].connect(newLabel(), 1, txlockgocron.WithLockAtLeastFor(minimum)))(t)
	defer func() { require.NoError(t, i.close()) }()
	lock := must.Get(i.locker.Lock(t.Context(), i.label))(t)
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	asked := time.Now()
	_, err := i.locker.Lock(ctx, i.label+"another")
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(asked), minimum)
	require.Contains(t, i.log.String(), "could not be asked for")
	require.NoError(t, lock.Unlock(t.Context()))
}

// It is not an error that gocron ends the wait.
func TestEndedContext(t *testing.T) {
	t.Parallel()
	i := engines[0].start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := i.locker.Lock(ctx, i.label)
	require.True(t, errors.Is(err, txlock.ErrNotAcquired) && errors.Is(err, context.Canceled), err)
	require.Empty(t, i.log.String())
}
