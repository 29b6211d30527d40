package txlockgocron_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	txlockgocron "github.com/txlock/txlock/gocron"
	"github.com/txlock/txlock/internal/test/eventually"
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
