// Package testbed starts and describes the real servers on which the benchmark runs.
package testbed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/go-sql-driver/mysql"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/wire"
)

// Testbed is the set of running servers.
type Testbed struct {
	running map[contest.Server]*servers.Server
	failed  map[contest.Server]error
}

// kinds are the databases, and software is the other servers.
var (
	kinds = map[contest.Server]servers.Kind{
		contest.PostgreSQL: servers.Postgres18, contest.MySQL: servers.MySQL, contest.MariaDB: servers.MariaDB,
	}
	software = map[contest.Server]servers.Software{contest.Redis: redis, contest.Etcd: servers.Etcd}
)

// Durable are the options of databases for measurements.
var Durable = servers.Options{Durable: true, Connections: 1000}

// Start finds or starts servers. It is no error if some cannot be started: Missing returns the
// reason. The options are for databases.
func Start(ctx context.Context, wanted []contest.Server, options servers.Options) *Testbed {
	t := &Testbed{running: map[contest.Server]*servers.Server{}, failed: map[contest.Server]error{}}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, server := range wanted {
		group.Go(func() {
			running, err := run(ctx, server, options)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.failed[server] = err
				return
			}
			t.running[server] = running
		})
	}
	group.Wait()
	return t
}

// run finds or starts a server.
func run(ctx context.Context, server contest.Server, options servers.Options) (*servers.Server, error) {
	if kind, ok := kinds[server]; ok {
		return servers.Start(ctx, kind, options)
	}
	return software[server].Start(ctx)
}

// Missing returns why a server does not run, or nil if it runs.
func (t *Testbed) Missing(server contest.Server) error {
	if t.running[server] != nil {
		return nil
	}
	if err := t.failed[server]; err != nil {
		return err
	}
	return fmt.Errorf("%s was not asked for", server)
}

// Address returns the address of a running server, or nothing.
func (t *Testbed) Address(server contest.Server) string {
	if running := t.running[server]; running != nil {
		return running.DSN
	}
	return ""
}

// Stop stops all servers.
func (t *Testbed) Stop() (err error) {
	for _, one := range t.running {
		err = errors.Join(err, one.Stop())
	}
	return err
}

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

// hostOf returns the host and port in a server's address.
func hostOf(server contest.Server, address string) (string, error) {
	switch server {
	case contest.PostgreSQL, contest.Etcd:
		parsed, err := url.Parse(address)
		if err != nil {
			return "", err
		}
		return parsed.Host, nil
	case contest.MySQL, contest.MariaDB:
		config, err := mysql.ParseDSN(address)
		if err != nil {
			return "", err
		}
		return config.Addr, nil
	}
	return address, nil
}

// Proxy stands between the clients and a server.
type Proxy struct {
	*wire.Proxy
	Address string // for clients
}

// Proxied starts a proxy in front of a server.
func (t *Testbed) Proxied(server contest.Server) (p Proxy, err error) {
	address := t.Address(server)
	host, err := hostOf(server, address)
	if err != nil {
		return p, err
	}
	if p.Proxy, err = wire.Listen(host); err != nil {
		return p, err
	}
	p.Address = strings.Replace(address, host, p.Addr(), 1)
	return p, nil
}
