// Package servers finds or starts the real database servers that tests, benchmarks and the demo run
// on, and Redis, ZooKeeper and etcd, whose locks benchmarks compare with, by one rule:
//
//  1. addresses given in TXLOCK_POSTGRES, TXLOCK_MYSQL and TXLOCK_MARIADB, and in TXLOCK_REDIS,
//     TXLOCK_ZOOKEEPER and TXLOCK_ETCD;
//  2. else server programs on the machine, started as private instances on loopback;
//  3. else containers, when a container engine answers;
//  4. else, on Debian, packages unpacked into a cache folder without touching the system, and
//     started like 2.
//
// PgBouncer is found like 2 and 4, and so are pairs, nodes of clusters, and servers with settings
// of their own. Faults are for private instances only. ZooKeeper runs on the machine's Java.
package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// Options change how a database is started that is not given by address. Other servers are started
// as they ship.
type Options struct {
	// Durable has a private instance flush at every commit, as servers do by default. Tests do
	// without it, measurements do not.
	Durable bool
	// Connections is how many the server accepts: 600, if it is 0.
	Connections int
	// Settings are further options of the server's command line. With any, it is a private instance
	// whatever address is given.
	Settings []string
}

func (o Options) connections() string {
	if o.Connections == 0 {
		return "600"
	}
	return strconv.Itoa(o.Connections)
}

// Server is a running server.
type Server struct {
	Kind   Kind
	Name   string // for people: "PostgreSQL 15"
	DSN    string // as drivers take it: see Start
	Origin string // how it was found, in one line

	stop func() error
	once sync.Once
	own  *instance // nil unless it is a private instance
}

// Stop stops the server and removes its data, unless it was given by address. A second call does
// nothing.
func (s *Server) Stop() (err error) {
	s.once.Do(func() {
		if s.stop != nil {
			err = s.stop()
		}
	})
	return err
}

// Start finds or starts a server. A server that it started ends with this process, however that
// ends. The DSN of a database is a postgres:// URL, or a data source name of go-sql-driver/mysql,
// and names a database that exists; that of Redis and of ZooKeeper is "host:port", and that of etcd
// an http:// URL.
func Start(ctx context.Context, kind Kind, options Options) (*Server, error) {
	if len(options.Settings) > 0 {
		return startOwn(ctx, kind, options)
	}
	if address := os.Getenv(kind.variable()); address != "" {
		name := kind.String()
		if kind == Postgres18 {
			name = "PostgreSQL"
		}
		return &Server{Kind: kind, Name: name, DSN: address, Origin: "given in " + kind.variable()}, nil
	}
	var failed []error
	for _, way := range []struct {
		name  string
		start func(context.Context, Kind, Options) (*Server, error)
	}{
		{"a server program on this machine", startInstalled},
		{"a container", startContainer},
		{"packages in a cache folder", startUnpacked},
	} {
		server, err := way.start(ctx, kind, options)
		if err == nil {
			return server, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", way.name, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("no %v to run on: install it, start a container engine, or give the address of a server "+
		"in %s; tried\n%w",
		kind, kind.variable(), errors.Join(failed...))
}

// startOwn starts a private instance, whatever address is given.
func startOwn(ctx context.Context, kind Kind, options Options) (*Server, error) {
	found, err := privatePrograms(ctx, kind)
	if err != nil {
		return nil, err
	}
	return found.start(ctx, kind, options)
}

func startInstalled(ctx context.Context, kind Kind, options Options) (*Server, error) {
	found, err := installed(kind)
	if err != nil {
		return nil, err
	}
	return found.start(ctx, kind, options)
}

func startUnpacked(ctx context.Context, kind Kind, options Options) (*Server, error) {
	found, err := unpackedPrograms(ctx, kind)
	if err != nil {
		return nil, err
	}
	return found.start(ctx, kind, options)
}

// cacheFolder is where packages are unpacked. A server that root starts runs as nobody, who cannot
// look into root's home.
func cacheFolder() (string, error) {
	if folder := os.Getenv("TXLOCK_CACHE"); folder != "" {
		return filepath.Abs(folder)
	}
	if os.Getuid() == 0 {
		return "/var/tmp/txlock-cache", nil
	}
	folder, err := os.UserCacheDir()
	return filepath.Join(folder, "txlock"), err
}
