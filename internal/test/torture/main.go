// Command torture uses locks from several processes while it kills, stops and cuts off workers and
// servers. Then it checks that no promise was broken. It prints a table of what it saw, and a seed
// that repeats the same faults in the same order. The exit code is 1 if it found a violation.
//
//	go run ./internal/test/torture -for 60s -engine postgres18
//
// With -pair it runs on a cluster of three servers, which change places again and again: patroni on
// PostgreSQL, group (Group Replication) on MySQL, or galera on MariaDB, whose nodes all take
// writes, each those of another worker.
//
//	go run ./internal/test/torture -pair group -switches 50 -engine mysql
//
// With -jobs it takes the jobs of a queue, by txlock.Any, until all are done.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/txlock/txlock/internal/test/servers"
)

var engineNames = map[string]servers.Kind{
	"postgres15": servers.Postgres15, "postgres18": servers.Postgres18, "mysql": servers.MySQL,
	"mariadb": servers.MariaDB,
}

func main() {
	workIfWorker()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		stop()
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("torture", flag.ExitOnError)
	s := settings{}
	flags.DurationVar(&s.For, "for", time.Minute, "how long to run on each engine")
	engine := flags.String("engine", "all", "postgres15, postgres18, mysql, mariadb, or all")
	flags.Int64Var(&s.Seed, "seed", 0, "seed of the faults and of the work; 0 for a random one")
	flags.StringVar(&s.Cluster, "pair", "", "run on three servers, which change places: patroni on PostgreSQL, "+
		"group (Group Replication) on MySQL, galera on MariaDB")
	flags.IntVar(&s.Switches, "switches", 50, "with -pair, how often they change places")
	flags.IntVar(&s.Jobs, "jobs", 0, "do so many jobs, each once, and nothing else; checked at intervals of -for")
	if err := flags.Parse(args); err != nil {
		return err
	}
	kinds := servers.Kinds()
	if *engine != "all" {
		kind, ok := engineNames[*engine]
		if !ok {
			return fmt.Errorf("no engine %q", *engine)
		}
		kinds = []servers.Kind{kind}
	}
	for _, kind := range kinds {
		if s.Cluster != "" && s.Cluster != clusterOn(kind) {
			return fmt.Errorf("no pair %q on %v, but %s", s.Cluster, kind, clusterOn(kind))
		}
	}
	for s.Seed == 0 {
		s.Seed = rand.Int64()
	}
	var err error
	for _, s.Kind = range kinds {
		result, failed := torture(ctx, s, os.Stdout)
		result.print(os.Stdout)
		if failed != nil {
			return failed
		}
		if n := len(result.Violations); n > 0 {
			err = errors.Join(err, fmt.Errorf("%v: %d violations", s.Kind, n))
		}
	}
	return err
}
