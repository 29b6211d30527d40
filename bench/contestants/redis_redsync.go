package contestants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	driver "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	registerRedsync("redsync, 1 server", "no renewal", 1)
	registerRedsync("redsync, 3 servers", "Redlock, no renewal", 3)
}

func registerRedsync(name, remark string, servers int) {
	contest.Register(contest.Contestant{
		Name: name, Group: contest.OnRedis, Server: contest.Redis, Waits: contest.Polling, Leased: true,
		Remark:  remark,
		Prepare: withoutLocks(redsyncPrefix(servers)),
		Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
			return openRedsync(ctx, env, servers)
		},
	})
}

func redsyncPrefix(servers int) string { return fmt.Sprintf("redsync-%d:", servers) }

type redsyncClient struct {
	servers []*redis.Client
	locks   *redsync.Redsync
	prefix  string
	lease   time.Duration
}

func openRedsync(ctx context.Context, env contest.Environment, servers int) (contest.Client, error) {
	if len(env.Addresses) < servers {
		return nil, fmt.Errorf("redsync: needs %d servers, there are %d", servers, len(env.Addresses))
	}
	client := &redsyncClient{prefix: redsyncPrefix(servers), lease: env.Lease}
	var pools []driver.Pool
	for _, address := range env.Addresses[:servers] {
		server, err := connectRedis(ctx, address, env.Contenders)
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		client.servers = append(client.servers, server)
		pools = append(pools, goredis.NewPool(server))
	}
	client.locks = redsync.New(pools...)
	return client, nil
}

// Hold implements contest.Client.
func (c *redsyncClient) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

func (c *redsyncClient) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	mutex := c.locks.NewMutex(c.prefix+key, redsync.WithExpiry(c.lease))
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
	ctx, cancel := unlocking(ctx)
	defer cancel()
	unlocked, err := mutex.UnlockContext(ctx)
	if err == nil && !unlocked {
		err = errLeaseEnded
	}
	if !unlocked {
		return fmt.Errorf("redsync: unlock %s: %w", mutex.Name(), err)
	}
	return nil
}

// Close implements contest.Client.
func (c *redsyncClient) Close() error {
	var errs []error
	for _, server := range c.servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}
