package contestants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	contest.Register(contest.Contestant{
		Name: "rueidislock", Group: contest.OnRedis, Server: contest.Redis, Waits: contest.Notified, Leased: true,
		Parts:   contest.Standard | contest.ManyKeys | contest.Crowd | contest.HotRow,
		Remark:  "renews the lease; a waiter may miss a release, and asks again after a lease",
		Prepare: withoutLocks("rueidislock:0:"), // the library's prefix
		Open: func(_ context.Context, env contest.Environment) (contest.Client, error) {
			locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption: rueidis.ClientOption{InitAddress: []string{env.Address()}},
				KeyValidity:  env.Lease,
				// As its README says for a single server of Redis 7.0.5 or later.
				KeyMajority: 1, NoLoopTracking: true,
				// After this time without an answer it would go on to the next of several keys.
				// Here there is none, so it would take its own lock back, and wait for a
				// notification of its own change, which it does not get.
				TryNextAfter: env.Lease,
			})
			if err != nil {
				return nil, fmt.Errorf("rueidislock: connect to %s: %w", env.Address(), err)
			}
			return rueidislockClient{locks: locks, lease: env.Lease}, nil
		},
	})
}

// rueidislockClient has one connection. Its callers queue in the process, and one of them at a time
// asks the server.
type rueidislockClient struct {
	locks rueidislock.Locker
	lease time.Duration
}

var errLockLost = errors.New("the lock was lost before the unlock")

// Hold implements contest.Client.
func (c rueidislockClient) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

// lock asks again after a lease, because the library may miss a release. After a failed try, it
// starts the goroutine that reads the failure count before it increments that count. If the
// goroutine reads first, the key's queue is removed, and a release no longer finds the waiters in
// it.
func (c rueidislockClient) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	for ctx.Err() == nil {
		attempt, end := context.WithCancel(ctx)
		patience := time.AfterFunc(c.lease, end) // not a deadline of attempt, which would also end the lock
		held, release, err := c.locks.WithContext(attempt, key)
		if err == nil && patience.Stop() {
			return held, func() error {
				defer end()
				return unlockRueidislock(ctx, held, release)
			}, nil
		}
		end()
		if err == nil {
			release()
		}
		if errors.Is(err, rueidislock.ErrLockerClosed) {
			return nil, nil, fmt.Errorf("rueidislock: lock %s: %w", key, err)
		}
	}
	return nil, nil, fmt.Errorf("rueidislock: lock %s: %w", key, context.Cause(ctx))
}

// unlockRueidislock reports a lost lock. release has no result, so it does not.
func unlockRueidislock(ctx, held context.Context, release context.CancelFunc) error {
	lost := held.Err() != nil && ctx.Err() == nil
	release()
	if lost {
		return fmt.Errorf("rueidislock: %w", errLockLost)
	}
	return nil
}

// Close implements contest.Client.
func (c rueidislockClient) Close() error {
	c.locks.Close()
	return nil
}
