package txlockgocron_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	txlockgocron "github.com/txlock/txlock/gocron"
)

// A job with a period runs once in it, on whichever instance, also when the lock is not kept and
// the instance that ran it is closed. Another job is not held up.
func TestPeriod(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		label := ""
		options := func() []txlockgocron.Option {
			return []txlockgocron.Option{
				txlockgocron.WithLockAtLeastFor(0), txlockgocron.WithPeriod(label, 100*365*24*time.Hour),
			}
		}
		probe := e.start(t)
		label = probe.label
		first, second := e.start(t, options()...), e.start(t, options()...)
		require.NoError(t, first.add(label, everyMinute()))
		require.NoError(t, second.add(label, everyMinute()))
		first.ran(t)
		second.missed(t)
		first.missed(t)
		runs, _ := e.runs(t, label)
		require.Equal(t, 1, runs)
		require.NoError(t, first.locker.Close())
		second.missed(t)
	})
}

// Jobs with a period that are due together do not keep the pool's connections from each other.
func TestPeriodsAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		options := []txlockgocron.Option{txlockgocron.WithLockAtLeastFor(0)}
		var names []string
		for range 8 {
			names = append(names, newLabel())
			options = append(options, txlockgocron.WithPeriod(names[len(names)-1], 100*365*24*time.Hour))
		}
		i, err := e.connect(newLabel(), 2, options...)
		require.NoError(t, err)
		defer func() { require.NoError(t, i.close()) }()
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		var group sync.WaitGroup
		for _, name := range names {
			group.Go(func() {
				lock, err := i.locker.Lock(ctx, name)
				if err == nil {
					err = lock.Unlock(ctx)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	})
}
