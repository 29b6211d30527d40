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
		Remark:  "renews the lease; a waiter may miss a release, and asks again after a lease",
		Prepare: withoutLocks("rueidislock:0:"), // as the library names them,
		Open: func(_ context.Context, env contest.Environment) (contest.Client, error) {
			locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption: rueidis.ClientOption{InitAddress: []string{env.Address()}},
				KeyValidity:  env.Lease,
				// What its README says for one server, and one that is not older than Redis 7.0.5.
				KeyMajority: 1, NoLoopTracking: true,
				// After so long without an answer it would go on to the next of several keys. Here
				// there is none: it would take back the lock that it has, and wait for a
				// notification that it does not get of what it did itself.
				TryNextAfter: env.Lease,
			})
			if err != nil {
				return nil, fmt.Errorf("rueidislock: connect to %s: %w", env.Address(), err)
			}
			return rueidislockClient{locks: locks, lease: env.Lease}, nil
		},
	})
}

// rueidislockClient has one connection: its callers queue in the process, and one of them at a time
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

// lock asks again after a lease. A failed try of the library counts its failure only after it has
// started the goroutine that reads the count: if that is first, the key's queue is removed, and a
// release no longer finds those who wait in it.
func (c rueidislockClient) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	for ctx.Err() == nil {
		attempt, end := context.WithCancel(ctx)
		patience := time.AfterFunc(c.lease, end) // no deadline of attempt: it would be the lock's, too
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

// unlockRueidislock tells of a lock that was lost, which release, without a result, does not.
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
