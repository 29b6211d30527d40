package testbed

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
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
			Arguments: []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", folder},
			DSN:       fmt.Sprintf("127.0.0.1:%d", port),
		}
	},
	Answers: func(ctx context.Context, dsn string) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", dsn)
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
			return err
		}
		answer, err := bufio.NewReader(conn).ReadString('\n')
		if err == nil && answer != "+PONG\r\n" {
			err = fmt.Errorf("the answer to a PING is %q", answer)
		}
		return err
	},
}
