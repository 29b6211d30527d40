package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock/internal/test/shop"
)

const (
	// replays is how often the orders of the file are placed, as new orders each time.
	replays = 10
	// branches share nothing but the database, as programs on different machines do.
	branches = 4
	// copies is how often each order is submitted.
	copies = 2
	// workers is the number of orders that one branch works on at a time, and of its connections.
	workers = 8
	// combined is that number with Combine, whose callers wait without a connection.
	combined = 64
	// runLimit ends a run that hangs.
	runLimit = 2 * time.Minute
)

func (w way) workers() int {
	if w == combining {
		return combined
	}
	return workers
}

// answer is the answer to a submitted order.
type answer struct {
	outcome   shop.Outcome
	deadlocks int // how often the database rolled the order back to break one
}

// openBranches connects as many desks as there are branches. With an error, it returns those that
// are open.
func openBranches(ctx context.Context, dsn string) (desks []*desk, err error) {
	for range branches {
		d, err := connect(ctx, dsn)
		if err != nil {
			return desks, err
		}
		desks = append(desks, d)
	}
	return desks, nil
}

func closeBranches(desks []*desk) (err error) {
	for _, d := range desks {
		err = errors.Join(err, d.close())
	}
	return err
}

// placeAll submits each order at one branch, and again at the next. It passes the answers to hear,
// and returns how long that took.
func placeAll(ctx context.Context, w way, desks []*desk, orders []shop.Order, hear func(answers <-chan answer)) (
	time.Duration, error,
) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	started := time.Now()
	answers := make(chan answer)
	group, ctx := errgroup.WithContext(ctx)
	for branch, d := range desks {
		var submitted []shop.Order
		for index := range orders {
			for again := range copies {
				if (index+again)%branches == branch {
					submitted = append(submitted, orders[index])
				}
			}
		}
		var next atomic.Int64
		for range w.workers() {
			group.Go(func() error {
				for i := next.Add(1) - 1; i < int64(len(submitted)); i = next.Add(1) - 1 {
					a, err := d.place(ctx, w, submitted[i])
					if err != nil {
						return fmt.Errorf("order %s: %w", submitted[i].ID, err)
					}
					answers <- a
				}
				return nil
			})
		}
	}
	var err error
	go func() {
		err = group.Wait()
		close(answers)
	}()
	hear(answers)
	return time.Since(started), err
}
