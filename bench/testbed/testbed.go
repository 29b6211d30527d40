// Package testbed has the real servers that the benchmark runs on.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/internal/servers"
)

// Testbed is the servers that run.
type Testbed struct {
	running map[contest.Server][]*servers.Server
	failed  map[contest.Server]error
}

// kinds say which servers are started of each kind of contestants'.
var kinds = map[contest.Server][]servers.Kind{
	contest.PostgreSQL: {servers.Postgres18},
	contest.MySQL:      {servers.MySQL},
	contest.MariaDB:    {servers.MariaDB},
	contest.Redis:      {servers.Redis, servers.Redis, servers.Redis},
	contest.ZooKeeper:  {servers.ZooKeeper},
	contest.Etcd:       {servers.Etcd},
}

// Start finds or starts servers. It is no error if some cannot be started: Missing tells.
func Start(ctx context.Context, wanted []contest.Server, started func(contest.Server)) *Testbed {
	t := &Testbed{running: map[contest.Server][]*servers.Server{}, failed: map[contest.Server]error{}}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, server := range wanted {
		group.Go(func() {
			running, err := startAll(ctx, kinds[server])
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

// startAll starts servers that flush at every commit, as they do by default.
func startAll(ctx context.Context, all []servers.Kind) (running []*servers.Server, err error) {
	for _, kind := range all {
		server, err := servers.Start(ctx, kind, servers.Options{Durable: true, Connections: 1000})
		if err != nil {
			for _, other := range running {
				err = errors.Join(err, other.Stop())
			}
			return nil, err
		}
		running = append(running, server)
		if strings.HasPrefix(server.Origin, "given") { // the next one would be the same
			break
		}
	}
	return running, nil
}

// Missing is why a server does not run, or nil.
func (t *Testbed) Missing(server contest.Server) error {
	if len(t.running[server]) > 0 {
		return nil
	}
	if err := t.failed[server]; err != nil {
		return err
	}
	return fmt.Errorf("%s was not asked for", server)
}

// Addresses are the addresses of a server that runs.
func (t *Testbed) Addresses(server contest.Server) (addresses []string) {
	for _, one := range t.running[server] {
		addresses = append(addresses, one.DSN)
	}
	return addresses
}

// CPU is the processor time that a server has used so far.
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
