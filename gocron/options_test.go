package txlockgocron_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	txlockgocron "github.com/txlock/txlock/gocron"
)

// Bad options are errors of New, because gocron drops those of Lock.
func TestBadOptions(t *testing.T) {
	t.Parallel()
	locks := txlock.New[pgx.Tx](nil)
	for name, option := range map[string]txlockgocron.Option{
		"nil option":           nil,
		"must not be negative": txlockgocron.WithLockAtLeastFor(-time.Second),
		"at least 1s":          txlockgocron.WithPeriod("report", time.Second-1),
		"nil logger":           txlockgocron.WithLogger(nil),
	} {
		locker, err := txlockgocron.New(locks, option)
		require.ErrorContains(t, err, name)
		require.Nil(t, locker)
	}
	_, err := txlockgocron.New[pgx.Tx](nil)
	require.ErrorContains(t, err, "nil locks")
}

// Programs with different prefixes do not exclude each other.
func TestPrefix(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		shop, shopToo, bank := e.start(t, txlockgocron.WithPrefix("shop:")),
			e.start(t, txlockgocron.WithPrefix("shop:")), e.start(t, txlockgocron.WithPrefix("bank:"))
		for _, i := range []*instance{shop, shopToo, bank} {
			require.NoError(t, i.add(shop.label, everyMinute()))
		}
		shop.ran(t)
		shopToo.missed(t)
		bank.ran(t)
	})
}

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
