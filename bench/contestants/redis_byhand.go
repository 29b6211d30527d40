package contestants

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	registerSetNX("SET NX PX by hand", "byhand:", contest.PollInterval, contest.Standard|contest.ManyKeys)
	registerSetNX("SET NX PX every 10 ms", "brisk:", contest.BriskInterval,
		contest.Standard|contest.ManyKeys|contest.Crowd)
}

func registerSetNX(name, prefix string, every time.Duration, parts contest.Part) {
	contest.Register(contest.Contestant{
		Name: name, Group: contest.OnRedis, Server: contest.Redis, Waits: contest.Polling, Leased: true,
		Parts:   parts,
		Remark:  "no renewal",
		Prepare: withoutLocks(prefix),
		Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
			server, err := connectRedis(ctx, env.Address(), env.Contenders)
			if err != nil {
				return nil, err
			}
			return setNX{server: server, lease: env.Lease, every: every, prefix: prefix}, nil
		},
	})
}

// setNX is the lock of the Redis manual for one server: a key with a random token, which only its
// owner deletes.
type setNX struct {
	server       *redis.Client
	lease, every time.Duration
	prefix       string
}

// deleteOwn compares and deletes in one step. Between two steps the lease could end, and another
// caller could lock the key.
var deleteOwn = redis.NewScript(`
	if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end
	return 0`)

var errLeaseEnded = errors.New("the lease ended before the unlock")

// Hold implements contest.Client.
func (c setNX) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

func (c setNX) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	name, token := c.prefix+key, rand.Text()
	err := contest.Poll(ctx, c.every, func() (bool, error) {
		return c.server.SetNX(ctx, name, token, c.lease).Result()
	})
	if err != nil {
		return nil, nil, fmt.Errorf("SET %s NX PX: %w", name, err)
	}
	return ctx, func() error { return c.unlock(ctx, name, token) }, nil
}

func (c setNX) unlock(ctx context.Context, name, token string) error {
	ctx, cancel := unlocking(ctx)
	defer cancel()
	deleted, err := deleteOwn.Run(ctx, c.server, []string{name}, token).Int()
	if err == nil && deleted == 0 {
		err = errLeaseEnded
	}
	if err != nil {
		return fmt.Errorf("unlock %s: %w", name, err)
	}
	return nil
}

// Close implements contest.Client.
func (c setNX) Close() error { return c.server.Close() }
