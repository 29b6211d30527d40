// Package testbed starts and describes the real servers on which the benchmark runs.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/internal/test/servers"
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
