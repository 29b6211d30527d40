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
	contest.Register(contest.Contestant{
		Name: "SET NX PX by hand", Group: contest.OnRedis, Server: contest.Redis, Waits: contest.Polling,
		Parts: contest.Standard, Remark: "no renewal; every 100 ms looked for",
		Open: func(_ context.Context, env contest.Environment) (contest.Client, error) {
			server := redis.NewClient(&redis.Options{Addr: env.Address, PoolSize: env.Contenders})
			return setNX{server: server, lease: env.Lease}, nil
		},
	})
}

// setNX is the lock of the Redis manual for one server: a key with a random token, which only its
// owner deletes. Those that an earlier run has left end with their leases.
type setNX struct {
	server *redis.Client
	lease  time.Duration
}

// deleteOwn compares and deletes in one step. Between two steps the lease could end, and another
// caller could lock the key.
var deleteOwn = redis.NewScript(`
	if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end
	return 0`)

var errLeaseEnded = errors.New("the lease ended before the unlock")

// Hold implements contest.Client.
func (c setNX) Hold(ctx context.Context, key string, work contest.Work) (err error) {
	name, token := "byhand:"+key, rand.Text()
	if err := contest.Poll(ctx, contest.PollInterval, func() (bool, error) {
		return c.server.SetNX(ctx, name, token, c.lease).Result()
	}); err != nil {
		return fmt.Errorf("SET %s NX PX: %w", name, err)
	}
	defer func() { err = errors.Join(err, c.unlock(ctx, name, token)) }()
	return work(ctx, nil)
}

func (c setNX) unlock(ctx context.Context, name, token string) error {
	ctx, cancel := contest.Unlocking(ctx)
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
