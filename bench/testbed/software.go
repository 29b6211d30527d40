package testbed

import (
	"context"
	"fmt"
	"strconv"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/txlock/txlock/internal/test/servers"
)

// redisServer is a Redis with its default durability.
var redisServer = servers.Software{
	Name: "Redis", Variable: "TXLOCK_REDIS",
	// redis-server is a link to a file of the package redis-tools.
	Packages: servers.Packages{Suite: "sid", Names: []string{"redis-server", "redis-tools"}, Libraries: true},
	Image:    servers.Image{Repository: "redis", Tag: "8", Port: "6379/tcp", DSN: "%s"},
	Ending:   syscall.SIGTERM, // any other signal would leave the child that saves its data
	Find:     servers.ProgramOf("redis-server"),
	Run: func(folder string, port int) servers.Run {
		return servers.Run{
			Arguments: []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", folder},
			DSN:       fmt.Sprintf("127.0.0.1:%d", port),
		}
	},
	Answers: func(ctx context.Context, dsn string) error {
		client := redis.NewClient(&redis.Options{Addr: dsn, MaxRetries: -1})
		defer client.Close()
		return client.Ping(ctx).Err()
	},
}
