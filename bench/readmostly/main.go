// Readmostly measures a lock that many share: 64 callers of one process, of whose calls nine in
// ten read. It compares a shared lock of txlock with an exclusive one, with PostgreSQL's own shared
// lock by hand, and with a sync.RWMutex, which is the limit. It prints a table.
//
//	go run ./readmostly
//
// Each contestant has several turns, in another order each time, and the median counts.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/servers"
)

const (
	contenders = 64
	writers    = 0.1 // of the calls
	rounds     = 5
	window     = 2 * time.Second
)

// section runs work under the lock, shared or alone.
type section func(ctx context.Context, shared bool, work func()) error

type contestant struct {
	name string
	run  section
}

// figures are those of one turn.
type figures struct {
	perSecond    float64
	writerWaited time.Duration // median
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var mu sync.RWMutex
	all := []contestant{{"`sync.RWMutex`, one process", func(_ context.Context, shared bool, work func()) error {
		if shared {
			mu.RLock()
			defer mu.RUnlock()
		} else {
			mu.Lock()
			defer mu.Unlock()
		}
		work()
		return nil
	}}}
	for _, kind := range []servers.Kind{servers.Postgres18, servers.MySQL, servers.MariaDB} {
		server, err := servers.Start(ctx, kind, servers.Options{})
		if err != nil {
			return err
		}
		defer server.Stop()
		more, end, err := on(ctx, server)
		if err != nil {
			return err
		}
		defer end()
		all = append(all, more...)
	}
	fmt.Println("| | sections in a second, hold 0 | a writer waits | hold 1 ms | a writer waits |")
	fmt.Println("|---|--:|--:|--:|--:|")
	turns := map[string]map[time.Duration][]figures{}
	holds := []time.Duration{0, time.Millisecond}
	for range rounds {
		for _, i := range rand.Perm(len(all)) {
			for _, hold := range holds {
				turn, err := measure(ctx, all[i].run, hold)
				if err != nil {
					return fmt.Errorf("%s: %w", all[i].name, err)
				}
				if turns[all[i].name] == nil {
					turns[all[i].name] = map[time.Duration][]figures{}
				}
				turns[all[i].name][hold] = append(turns[all[i].name][hold], turn)
			}
		}
	}
	for _, c := range all {
		line := "| " + c.name
		for _, hold := range holds {
			median := medianOf(turns[c.name][hold])
			line += fmt.Sprintf(" | %.0f | %v", median.perSecond, median.writerWaited.Round(10*time.Microsecond))
		}
		fmt.Println(line + " |")
	}
	return nil
}

// on are the contestants on a server.
func on(ctx context.Context, server *servers.Server) ([]contestant, func(), error) {
	if server.Kind == servers.MySQL || server.Kind == servers.MariaDB {
		driver, err := mysql.Open(ctx, server.DSN)
		if err != nil {
			return nil, nil, err
		}
		return ofTxlock[*sql.Tx](ctx, server.Name, driver)
	}
	config, err := pgxpool.ParseConfig(server.DSN)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = contenders
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	all, end, err := ofTxlock[pgx.Tx](ctx, server.Name, postgres.New(pool))
	advisory := func(ctx context.Context, shared bool, work func()) error {
		return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			suffix := ""
			if shared {
				suffix = "_shared"
			}
			if _, err := conn.Exec(ctx, "select pg_advisory_lock"+suffix+"(1)"); err != nil {
				return err
			}
			work()
			_, err := conn.Exec(ctx, "select pg_advisory_unlock"+suffix+"(1)")
			return err
		})
	}
	return append(all, contestant{"`pg_advisory_lock_shared` by hand, " + server.Name, advisory}), func() {
		end()
		pool.Close()
	}, err
}

func ofTxlock[Tx any](ctx context.Context, server string, driver dialects.Driver[Tx]) ([]contestant, func(), error) {
	locks := txlock.New(driver, txlock.WithQueue(contenders))
	if err := locks.Install(ctx); err != nil {
		return nil, nil, errors.Join(err, locks.Close())
	}
	alone := locks.Mutex("read mostly")
	under := func(m *txlock.Mutex[Tx]) func(ctx context.Context, work func()) error {
		return func(ctx context.Context, work func()) error {
			lock, err := m.Lock(ctx)
			if err != nil {
				return err
			}
			work()
			return lock.Unlock(ctx)
		}
	}
	write, read := under(alone), under(alone.Shared())
	return []contestant{
		{"`Shared`, " + server, func(ctx context.Context, shared bool, work func()) error {
			if shared {
				return read(ctx, work)
			}
			return write(ctx, work)
		}},
		{"exclusive for all, " + server, func(ctx context.Context, _ bool, work func()) error {
			return write(ctx, work)
		}},
	}, func() { _ = locks.Close() }, nil
}

// measure lets all contenders call for as long as the window.
func measure(ctx context.Context, run section, hold time.Duration) (figures, error) {
	var mu sync.Mutex
	var waited []time.Duration
	var failed error
	sections := 0
	var group sync.WaitGroup
	began := time.Now()
	for range contenders {
		group.Go(func() {
			for time.Since(began) < window {
				shared := rand.Float64() >= writers
				asked := time.Now()
				err := run(ctx, shared, func() {
					wait := time.Since(asked)
					time.Sleep(hold)
					mu.Lock()
					defer mu.Unlock()
					sections++
					if !shared {
						waited = append(waited, wait)
					}
				})
				if err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	slices.Sort(waited)
	f := figures{perSecond: float64(sections) / took.Seconds()}
	if len(waited) > 0 {
		f.writerWaited = waited[len(waited)/2]
	}
	return f, failed
}

func medianOf(turns []figures) figures {
	slices.SortFunc(turns, func(a, b figures) int { return int(a.perSecond - b.perSecond) })
	return turns[len(turns)/2]
}
