// Package servers finds or starts the real database servers on which tests, benchmarks and the demo
// run. It takes the first of these that works:
//
//  1. the address given in TXLOCK_POSTGRES, TXLOCK_MYSQL or TXLOCK_MARIADB;
//  2. a server program on this machine, started as a private instance on 127.0.0.1;
//  3. a container, when a container engine answers;
//  4. on Debian, packages unpacked into a cache folder, without touching the system, and started
//     as in 2.
//
// Poolers and proxies, pairs, nodes of clusters, and servers with settings of their own are always
// private instances, from 2 or 4. Faults work on private instances only. Software lets others start
// further servers in the same order. Chromium finds a browser, as in 2 or 4.
package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// WithPool is dsn with a limit on the pool of postgres.Open or mysql.Open. 0: as it comes.
func WithPool(dsn string, connections int) string {
	if connections == 0 {
		return dsn
	}
	join := "?"
	if strings.Contains(dsn, join) {
		join = "&"
	}
	return dsn + join + "pool_max_conns=" + strconv.Itoa(connections)
}

// Options change how a database is started. They do not matter for one that is given by address.
type Options struct {
	// Durable makes a private instance flush at every commit, as servers do by default.
	// Measurements need that, tests do not.
	Durable bool
	// Connections is how many connections the server accepts. 0 stands for 600.
	Connections int
	// Settings are further options of the server's command line. A server with any of them is a
	// private instance, even if an address is given.
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
	Kind   Kind   // of a database
	Name   string // for people: "PostgreSQL 15"
	DSN    string // as drivers take it: see Start
	Origin string // how it was found, in one line

	stop    func() error
	once    sync.Once
	own     *instance // nil unless it is a private instance
	answers func(ctx context.Context, dsn string) error
}

// answering is the probe of this server.
func (s *Server) answering(ctx context.Context) error { return s.answers(ctx, s.DSN) }

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

// Start finds or starts a database. A server that it starts ends with this process, however the
// process ends. The DSN is a postgres:// URL or a data source name of go-sql-driver/mysql. It names
// a database that exists.
func Start(ctx context.Context, kind Kind, options Options) (*Server, error) {
	if len(options.Settings) > 0 {
		return startOwn(ctx, kind, options)
	}
	server, err := firstOf(ctx, kind.String(), kind.variable(),
		func(ctx context.Context) (*Server, error) {
			found, err := installed(kind)
			if err != nil {
				return nil, err
			}
			return found.start(ctx, kind, options)
		},
		func(ctx context.Context) (*Server, error) {
			return startContainer(ctx, kind.String(), kind.image(options), kind.answers)
		},
		func(ctx context.Context) (*Server, error) {
			found, err := unpackedPrograms(ctx, kind)
			if err != nil {
				return nil, err
			}
			return found.start(ctx, kind, options)
		})
	if err != nil {
		return nil, err
	}
	server.Kind = kind
	if kind == Postgres18 && os.Getenv(kind.variable()) != "" {
		server.Name = "PostgreSQL" // of whatever version
	}
	return server, nil
}

// firstOf returns the server whose address is in the variable, or else the first that can be
// started.
func firstOf(ctx context.Context, name, variable string,
	installed, container, unpacked func(context.Context) (*Server, error),
) (*Server, error) {
	if address := os.Getenv(variable); address != "" {
		return &Server{Name: name, DSN: address, Origin: "given in " + variable}, nil
	}
	var failed []error
	for _, way := range []struct {
		name  string
		start func(context.Context) (*Server, error)
	}{
		{"a server program on this machine", installed},
		{"a container", container},
		{"packages in a cache folder", unpacked},
	} {
		server, err := way.start(ctx)
		if err == nil {
			return server, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", way.name, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("no %s to run on: install it, start a container engine, or give the address of a server "+
		"in %s; tried\n%w", name, variable, errors.Join(failed...))
}

// startOwn starts a private instance, even if an address is given.
func startOwn(ctx context.Context, kind Kind, options Options) (*Server, error) {
	found, err := privatePrograms(ctx, kind)
	if err != nil {
		return nil, err
	}
	return found.start(ctx, kind, options)
}

// cacheFolder is where packages are unpacked. It is not in root's home: a server that root starts
// runs as nobody, who cannot look there.
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

// RunOn starts a server of each kind, all at once, calls prepare with one after the other, calls
// run, and returns an exit code. At the end, and also on an error or an interrupt, it closes what
// prepare returned and then stops the servers. What prepare returns beside an error is closed too.
func RunOn(kinds []Kind, prepare func(*Server) (io.Closer, error), run func() int) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	started, failed := make([]*Server, len(kinds)), make([]error, len(kinds))
	var group sync.WaitGroup
	for i, kind := range kinds {
		group.Go(func() { started[i], failed[i] = Start(ctx, kind, Options{}) })
	}
	group.Wait()
	for _, server := range started {
		if server != nil {
			defer server.Stop()
		}
	}
	if err := errors.Join(failed...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, server := range started {
		prepared, err := prepare(server)
		if prepared != nil {
			defer prepared.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return interruptible(ctx, run)
}

// interruptible does not wait for run when ctx ends, so that servers can be stopped.
func interruptible(ctx context.Context, run func() int) int {
	done := make(chan int, 1)
	go func() { done <- run() }()
	select {
	case code := <-done:
		return code
	case <-ctx.Done():
		return 130
	}
}
