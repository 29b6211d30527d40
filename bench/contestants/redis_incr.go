package contestants

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/txlock/txlock/bench/contest"
)

const incrPrefix = "incr:"

func init() {
	contest.Register(contest.Contestant{
		Name: "INCR, then EXPIRE", Group: contest.OnRedis, Server: contest.Redis, Waits: contest.Polling, Leased: true,
		Remark: "as in old posts: a crash between the two commands locks the key for ever; the unlock deletes " +
			"anybody's lock",
		Prepare: withoutLocks(incrPrefix),
		Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
			server, err := connectRedis(ctx, env.Address(), env.Contenders)
			if err != nil {
				return nil, err
			}
			return incr{server: server, lease: env.Lease}, nil
		},
	})
}

// incr is a counter for each key. Whoever counts to 1 has the lock, and lets it expire.
type incr struct {
	server *redis.Client
	lease  time.Duration
}

// Hold implements contest.Client.
func (c incr) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

func (c incr) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	name := incrPrefix + key
	err := contest.Poll(ctx, contest.PollInterval, func() (bool, error) {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		trying, cancel := unlocking(ctx) // an interrupted try might lock the key for ever
		defer cancel()
		count, err := c.server.Incr(trying, name).Result()
		if err != nil || count > 1 {
			return false, err
		}
		return true, c.server.PExpire(trying, name, c.lease).Err()
	})
	if err != nil {
		return nil, nil, fmt.Errorf("INCR %s: %w", name, err)
	}
	return ctx, func() error {
		ctx, cancel := unlocking(ctx)
		defer cancel()
		if err := c.server.Del(ctx, name).Err(); err != nil {
			return fmt.Errorf("unlock %s: %w", name, err)
		}
		return nil
	}, nil
}

// Close implements contest.Client.
func (c incr) Close() error { return c.server.Close() }
