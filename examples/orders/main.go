// Orders replays the orders of a shop against an inventory table, with many workers in several
// branches, on PostgreSQL and on MySQL or MariaDB. It does so first without a lock, then in
// txlock's Do, then with its Combine. After each run it audits the tables.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/shop"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := demonstrate(ctx)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "orders: interrupted:", err)
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func demonstrate(ctx context.Context) error {
	orders, err := shop.Load(replays)
	if err != nil {
		return err
	}
	introduce(orders)
	var runs []run
	for _, kinds := range [][]servers.Kind{{servers.Postgres()}, {servers.MySQL, servers.MariaDB}} {
		more, err := onServer(ctx, orders, kinds)
		if err != nil {
			return err
		}
		runs = append(runs, more...)
	}
	return conclude(runs)
}

// onServer starts a server of the first of kinds that starts, and does the runs on it.
func onServer(ctx context.Context, orders []shop.Order, kinds []servers.Kind) (runs []run, err error) {
	fmt.Printf("\nFinding or starting %v …\n", kinds[0])
	server, err := servers.Start(ctx, kinds[0], servers.Options{Durable: true})
	if err != nil {
		if len(kinds) > 1 && ctx.Err() == nil {
			fmt.Printf("%v could not be started, so %v takes its place: %v\n", kinds[0], kinds[1], err)
			return onServer(ctx, orders, kinds[1:])
		}
		return nil, fmt.Errorf("start %v: %w", kinds[0], err)
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	fmt.Printf("%s, %s\n", server.Name, server.Origin)

	desks, err := openBranches(ctx, server.DSN)
	defer func() { err = errors.Join(err, closeBranches(desks)) }()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", server.Name, err)
	}
	defer func() {
		// The user may have provided the server, and keep it, so the tables are dropped.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, desks[0].ledger.Drop(clean, slots))
	}()
	for _, w := range []way{unlocked, withRows, withMutex, combining} {
		r, err := replay(ctx, desks, server.Name, w, orders)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", server.Name, w, err)
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// replay opens a new shop, has all orders placed, and audits the books.
func replay(ctx context.Context, desks []*desk, database string, w way, orders []shop.Order) (run, error) {
	opening := shop.StockFor(orders)
	if err := desks[0].open(ctx, opening); err != nil {
		return run{}, err
	}
	r := run{database: database, way: w, orders: len(orders)}
	progress := newProgress(w, copies*len(orders))
	var err error
	if r.took, err = placeAll(ctx, w, desks, orders, progress.follow); err != nil {
		return run{}, err
	}
	books, err := desks[0].ledger.Books(ctx)
	if err != nil {
		return run{}, err
	}
	r.deadlocks = progress.deadlocks
	r.Findings = shop.Audit(books, opening, orders, progress.outcomes[shop.Booked])
	r.report()
	return r, nil
}
