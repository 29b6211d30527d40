package contestants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/txlock/txlock/bench/contest"
)

const (
	redislockPrefix = "redislock:"
	// redislockBackoff is the interval of the example in its documentation. By default it does not
	// wait at all.
	redislockBackoff = 100 * time.Millisecond
)

func init() {
	contest.Register(contest.Contestant{
		Name: "redislock", Group: contest.OnRedis, Server: contest.Redis, Waits: contest.Polling, Leased: true,
		Parts:   contest.Standard | contest.ManyKeys | contest.Crowd | contest.HotRow,
		Remark:  "no renewal",
		Prepare: withoutLocks(redislockPrefix),
		Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
			server, err := connectRedis(ctx, env.Address(), env.Contenders)
			if err != nil {
				return nil, err
			}
			return redislockClient{server: server, locks: redislock.New(server), lease: env.Lease}, nil
		},
	})
}

type redislockClient struct {
	server *redis.Client
	locks  *redislock.Client
	lease  time.Duration
}

// Hold implements contest.Client.
func (c redislockClient) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

func (c redislockClient) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	lock, err := c.obtain(ctx, redislockPrefix+key)
	if err != nil {
		return nil, nil, fmt.Errorf("redislock: obtain %s: %w", key, err)
	}
	return ctx, func() error {
		ctx, cancel := unlocking(ctx)
		defer cancel()
		if err := lock.Release(ctx); err != nil {
			return fmt.Errorf("redislock: release %s: %w", key, err)
		}
		return nil
	}, nil
}

// obtain tries again when Obtain has given up: if ctx has no deadline, Obtain gives up after a
// lease.
func (c redislockClient) obtain(ctx context.Context, name string) (*redislock.Lock, error) {
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockBackoff)}
	for {
		lock, err := c.locks.Obtain(ctx, name, c.lease, options)
		switch {
		case err == nil:
			return lock, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		}
	}
}

// Close implements contest.Client.
func (c redislockClient) Close() error { return c.server.Close() }
