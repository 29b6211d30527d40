package contestants

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/txlock/txlock/bench/contest"
)

// connectRedis connects to one Redis. It opens a connection for each contender, so that the first
// commands are not slower.
func connectRedis(ctx context.Context, address string, contenders int) (*redis.Client, error) {
	client := redis.NewClient(&redis.Options{Addr: address, PoolSize: contenders})
	if err := warm(ctx, client, contenders); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to Redis at %s: %w", address, err), client.Close())
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
		for _, address := range env.Addresses {
			client, err := connectRedis(ctx, address, 1)
			if err != nil {
				return err
			}
			if err := errors.Join(client.Del(ctx, names...).Err(), client.Close()); err != nil {
				return fmt.Errorf("delete the locks %s* of the Redis at %s: %w", prefix, address, err)
			}
		}
		return nil
	}
}
