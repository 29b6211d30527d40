// Command torture uses locks from several processes while it kills, stops and cuts off workers and
// servers. Then it checks that no promise was broken. It prints a table of what it saw, and a seed
// that repeats the same faults in the same order. The exit code is 1 if it found a violation.
//
//	go run ./internal/test/torture -for 60s -engine postgres18
//
// With -pair it runs on a primary and its standby, which change places again and again:
//
//	go run ./internal/test/torture -pair haproxy -switches 50 -engine mysql
//
// With -pair patroni, patroni-hosts or group, on a cluster of three; with -pair galera on one whose
// nodes all take writes, each those of another worker.
//
// With -lock it tortures locks that people make by hand, to show that it finds violations.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
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
	engine := flags.String("engine", "all", "engines, separated by commas: postgres15, postgres18, mysql, mariadb; "+
		"or all")
	flags.Int64Var(&s.Seed, "seed", 0, "seed of the faults and of the work; 0 for a random one")
	flags.IntVar(&s.Processes, "processes", 3, "number of worker processes")
	flags.IntVar(&s.Goroutines, "goroutines", 4, "goroutines in each worker process")
	flags.IntVar(&s.Keys, "keys", 16, "number of keys, 2 to 156")
	flags.StringVar(&s.Lock, "lock", lockTxlock, "what is tortured: txlock, lease-row or look-first")
	flags.StringVar(&s.Pair, "pair", "", "run on a primary with a standby, which change places: by haproxy; on "+
		"PostgreSQL, by hosts: a connection string with both; or on three servers: patroni and "+
		"patroni-hosts on PostgreSQL, group (Group Replication) on MySQL, galera on MariaDB, "+
		"whose nodes all take writes")
	flags.IntVar(&s.Switches, "switches", 50, "with -pair, how often they change places")
	flags.BoolVar(&s.Asynchronous, "asynchronous", false, "with -pair, commits do not wait for the standby: "+
		"acknowledged work will be lost")
	flags.StringVar(&s.Former, "former", "", "this program, built of another version: every other worker is one")
	flags.StringVar(&s.Installer, "installer", "", "the command txlock of another version: it installs the lock "+
		"table, which this version upgrades")
	if err := flags.Parse(args); err != nil {
		return err
	}
	kinds, err := kindsOf(*engine)
	if err != nil {
		return err
	}
	if err := s.check(kinds); err != nil {
		return err
	}
	for s.Seed == 0 {
		s.Seed = rand.Int64()
	}
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

// check refuses invalid settings before a server is started.
func (s *settings) check(kinds []servers.Kind) error {
	if s.Processes < 1 || s.Goroutines < 1 || s.Keys < 2 || s.Keys > 256-fillers {
		return errors.New("needed are a process, a goroutine, and 2 to 156 keys")
	}
	if s.Pair == "" {
		s.Switches = 0
	}
	if isCluster(s.Pair) && s.Asynchronous {
		return fmt.Errorf("commits wait for others in a cluster: not -asynchronous with -pair %s", s.Pair)
	}
	for _, kind := range kinds {
		possible := []string{"", pairHAProxy}
		switch {
		case isPostgres(kind):
			possible = append(possible, pairHosts, pairPatroni, pairPatroniHosts)
		case kind == servers.MySQL:
			possible = append(possible, pairGroup)
		case kind == servers.MariaDB:
			possible = append(possible, pairGalera)
		}
		if !slices.Contains(possible, s.Pair) {
			return fmt.Errorf("no pair by %q on %v", s.Pair, kind)
		}
		_, err := openHandmade(plan{Kind: kind, Lock: s.Lock, Keys: s.Keys}, nil)
		if err != nil && s.Lock != lockTxlock {
			return err
		}
	}
	return nil
}

func kindsOf(engine string) ([]servers.Kind, error) {
	if engine == "all" {
		return servers.Kinds(), nil
	}
	var kinds []servers.Kind
	for name := range strings.SplitSeq(engine, ",") {
		kind, ok := engineNames[name]
		if !ok {
			return nil, fmt.Errorf("no engine %q", name)
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}
