// Package testbed starts and describes the real servers on which the benchmark runs.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/internal/test/servers"
)

// Testbed is the set of running servers.
type Testbed struct {
	running map[contest.Server][]*servers.Server
	failed  map[contest.Server]error
}

// kinds are the databases, and software is the other servers.
var (
	kinds = map[contest.Server]servers.Kind{
		contest.PostgreSQL: servers.Postgres18, contest.MySQL: servers.MySQL, contest.MariaDB: servers.MariaDB,
	}
	software = map[contest.Server]servers.Software{
		contest.Redis: redis, contest.ZooKeeper: zooKeeper, contest.Etcd: servers.Etcd,
	}
)

// Start finds or starts servers. It is no error if some cannot be started: Missing returns the
// reason.
func Start(ctx context.Context, wanted []contest.Server, started func(contest.Server)) *Testbed {
	t := &Testbed{running: map[contest.Server][]*servers.Server{}, failed: map[contest.Server]error{}}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, server := range wanted {
		group.Go(func() {
			running, err := Run(ctx, server, servers.Options{Durable: true, Connections: 1000})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.failed[server] = err
				return
			}
			t.running[server] = running
			started(server)
		})
	}
	group.Wait()
	return t
}

// Run finds or starts the instances of a server: three of Redis, one of any other. The options are
// for databases.
func Run(ctx context.Context, server contest.Server, options servers.Options) (running []*servers.Server, err error) {
	instances := 1
	if server == contest.Redis {
		instances = 3
	}
	for range instances {
		server, err := start(ctx, server, options)
		if err != nil {
			for _, other := range running {
				err = errors.Join(err, other.Stop())
			}
			return nil, err
		}
		running = append(running, server)
		if strings.HasPrefix(server.Origin, "given") { // a further instance would be the same server
			break
		}
	}
	return running, nil
}

func start(ctx context.Context, server contest.Server, options servers.Options) (*servers.Server, error) {
	if kind, ok := kinds[server]; ok {
		return servers.Start(ctx, kind, options)
	}
	return software[server].Start(ctx)
}

// Missing returns why a server does not run, or nil if it runs.
func (t *Testbed) Missing(server contest.Server) error {
	if len(t.running[server]) > 0 {
		return nil
	}
	if err := t.failed[server]; err != nil {
		return err
	}
	return fmt.Errorf("%s was not asked for", server)
}

// Addresses returns the addresses of a running server.
func (t *Testbed) Addresses(server contest.Server) (addresses []string) {
	for _, one := range t.running[server] {
		addresses = append(addresses, one.DSN)
	}
	return addresses
}

// CPU returns the processor time that a server has used so far.
func (t *Testbed) CPU(server contest.Server) (total time.Duration, err error) {
	for _, one := range t.running[server] {
		used, err := one.CPU()
		if err != nil {
			return 0, err
		}
		total += used
	}
	return total, nil
}

// Stop stops all servers.
func (t *Testbed) Stop() (err error) {
	for _, several := range t.running {
		for _, one := range several {
			err = errors.Join(err, one.Stop())
		}
	}
	return err
}
