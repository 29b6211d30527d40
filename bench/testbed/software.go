package testbed

import (
	"context"
	"fmt"
	"strconv"
	"syscall"

	"github.com/txlock/txlock/internal/test/servers"
)

// redis is a Redis with its default durability.
var redis = servers.Software{
	Name: "Redis", Variable: "TXLOCK_REDIS",
	// redis-server is a link to a file of the package redis-tools.
	Packages: servers.Packages{Suite: "sid", Names: []string{"redis-server", "redis-tools"}, Libraries: true},
	Image:    servers.Image{Repository: "redis", Tag: "8", Port: "6379/tcp", DSN: "%s"},
	Ending:   syscall.SIGTERM, // any other signal would leave the child that saves its data
	Find:     servers.ProgramOf("redis-server"),
	Run: func(folder string, port int) servers.Run {
		return servers.Run{
			Arguments: []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", folder}, DSN: local(port),
		}
	},
	Answers: func(ctx context.Context, dsn string) error {
		return answers(talk(ctx, dsn, "PING\r\nQUIT\r\n", "+PONG"))
	},
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func answers(_ string, err error) error { return err }
