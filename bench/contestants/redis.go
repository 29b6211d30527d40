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
		Parts: contest.Standard, Remark: "no renewal; every 100 ms looked for", Prepare: withoutLocks(setNXPrefix),
		Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
			server, err := connectRedis(ctx, env)
			return setNX{server: server, lease: env.Lease}, err
		},
	})
}

const setNXPrefix = "byhand:"

// setNX is the lock of the Redis manual for one server: a key with a random token, which only its
// owner deletes.
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
func (c setNX) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

func (c setNX) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	name, token := setNXPrefix+key, rand.Text()
	err := contest.Poll(ctx, contest.PollInterval, func() (bool, error) {
		return c.server.SetNX(ctx, name, token, c.lease).Result()
	})
	if err != nil {
		return nil, nil, fmt.Errorf("SET %s NX PX: %w", name, err)
	}
	return ctx, func() error { return c.unlock(ctx, name, token) }, nil
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

// connectRedis connects to one Redis. It opens a connection for each contender, so that the first
// commands are not slower.
func connectRedis(ctx context.Context, env contest.Environment) (*redis.Client, error) {
	client := redis.NewClient(&redis.Options{Addr: env.Address, PoolSize: env.Contenders})
	if err := warm(ctx, client, env.Contenders); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to Redis at %s: %w", env.Address, err), client.Close())
	}
	return client, nil
}

// warm uses all connections at once, so that the pool opens and greets that many.
func warm(ctx context.Context, client *redis.Client, connections int) error {
	for range connections {
		connection := client.Conn()
		defer connection.Close()
		if err := connection.Ping(ctx).Err(); err != nil {
			return err
		}
	}
	return nil
}

// withoutLocks is a Prepare that deletes the locks of earlier runs. Other contestants, which may be
// running, use other prefixes.
func withoutLocks(prefix string) func(context.Context, contest.Environment, []string) error {
	return func(ctx context.Context, env contest.Environment, keys []string) error {
		var names []string
		for _, key := range keys {
			names = append(names, prefix+key)
		}
		client, err := connectRedis(ctx, env)
		if err != nil {
			return err
		}
		return errors.Join(client.Del(ctx, names...).Err(), client.Close())
	}
}
