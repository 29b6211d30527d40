package contestants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/txlock/txlock/bench/contest"
)

const getSetPrefix = "getset:"

func init() {
	contest.Register(contest.Contestant{
		Name: "SETNX, then GETSET", Group: contest.OnRedis, Server: contest.Redis, Waits: contest.Polling, Leased: true,
		Remark:  "as in old posts: the value is a deadline by the client's clock; no renewal",
		Prepare: withoutLocks(getSetPrefix),
		Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
			server, err := connectRedis(ctx, env.Address(), env.Contenders)
			if err != nil {
				return nil, err
			}
			return getSet{server: server, lease: env.Lease}, nil
		},
	})
}

// getSet is a key whose value is the time until which it is locked. It never expires: whoever finds
// a time in the past writes a new one, and has the lock if the old one was still there.
type getSet struct {
	server *redis.Client
	lease  time.Duration
}

// Hold implements contest.Client.
func (c getSet) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

func (c getSet) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	name := getSetPrefix + key
	var deadline int64 // in microseconds
	err := contest.Poll(ctx, contest.PollInterval, func() (locked bool, err error) {
		deadline = time.Now().Add(c.lease).UnixMicro()
		return c.try(ctx, name, deadline)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("SETNX %s: %w", name, err)
	}
	return ctx, func() error { return c.unlock(ctx, name, deadline) }, nil
}

func (c getSet) try(ctx context.Context, name string, deadline int64) (locked bool, err error) {
	locked, err = c.server.SetNX(ctx, name, deadline, 0).Result()
	if err != nil || locked {
		return locked, err
	}
	until, err := c.server.Get(ctx, name).Int64()
	if errors.Is(err, redis.Nil) || err == nil && until > time.Now().UnixMicro() {
		return false, nil // the next try finds it free, or still locked
	}
	if err != nil {
		return false, err
	}
	was, err := c.server.SetArgs(ctx, name, deadline, redis.SetArgs{Get: true}).Result() // GETSET, as it is called now
	if errors.Is(err, redis.Nil) {
		return true, nil // its holder has just deleted it
	}
	return was == fmt.Sprint(until), err
}

// unlock deletes the key only before the deadline, as the posts say. In between another may have
// written a deadline of its own over this one, without getting the lock.
func (c getSet) unlock(ctx context.Context, name string, deadline int64) error {
	if time.Now().UnixMicro() >= deadline {
		return fmt.Errorf("unlock %s: %w", name, errLeaseEnded)
	}
	ctx, cancel := unlocking(ctx)
	defer cancel()
	if err := c.server.Del(ctx, name).Err(); err != nil {
		return fmt.Errorf("unlock %s: %w", name, err)
	}
	return nil
}

// Close implements contest.Client.
func (c getSet) Close() error { return c.server.Close() }
