package contestants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	contest.Register(contest.Contestant{
		Name: "redsync", Group: contest.OnRedis, Server: contest.Redis, Waits: contest.Polling,
		Parts: contest.Standard, Remark: "one server, no renewal",
		Open: func(_ context.Context, env contest.Environment) (contest.Client, error) {
			server := redis.NewClient(&redis.Options{
				Addr: env.Address, PoolSize: env.Contenders, MinIdleConns: env.Contenders,
			})
			return redsyncClient{server, redsync.New(goredis.NewPool(server)), env.Lease}, nil
		},
	})
}

// redsyncClient locks keys that end with their leases, also those that an earlier run has left.
type redsyncClient struct {
	*redis.Client
	locks *redsync.Redsync
	lease time.Duration
}

// Hold implements contest.Client.
func (c redsyncClient) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

func (c redsyncClient) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	mutex := c.locks.NewMutex(key, redsync.WithExpiry(c.lease))
	// It gives up after 32 tries. Its error does not always tell a lock that is held from a server
	// that fails.
	for {
		err := mutex.LockContext(ctx)
		if err == nil {
			return ctx, func() error { return unlockRedsync(ctx, mutex) }, nil
		}
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("redsync: lock %s: %w", mutex.Name(), errors.Join(context.Cause(ctx), err))
		}
	}
}

func unlockRedsync(ctx context.Context, mutex *redsync.Mutex) error {
	ctx, cancel := contest.Unlocking(ctx)
	defer cancel()
	unlocked, err := mutex.UnlockContext(ctx)
	if err == nil && !unlocked {
		err = errLost
	}
	if !unlocked {
		return fmt.Errorf("redsync: unlock %s: %w", mutex.Name(), err)
	}
	return nil
}
