package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"

	"github.com/txlock/txlock/internal/test/shop"
)

const (
	// workers is the number of orders that one process works on at a time, and of its connections.
	workers = 8
	// combined is that number with Combine, whose callers wait without a connection.
	combined = 64
)

func (w way) workers() int {
	if w == combining {
		return combined
	}
	return workers
}

// serve is a worker process. It connects, says ready, and then answers each line of its standard
// input, which is the index of an order, with a line that has the outcome. It ends when its input
// ends: at the end of the run, or because the parent died.
func serve(w way, dsn string) error {
	signal.Ignore(os.Interrupt) // the terminal sends it to all processes; the parent decides
	orders, err := shop.Load(replays)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	s, err := connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer s.Close()

	// The queue has room for all orders, so that the end of the input is noticed however busy the
	// workers are.
	queue := make(chan int, copies*len(orders))
	go func() { stop(enqueue(queue, len(orders))) }()
	fmt.Println("ready")

	var group sync.WaitGroup
	for range w.workers() {
		group.Go(func() {
			if err := drain(ctx, s, w, orders, queue); err != nil {
				stop(err)
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// enqueue returns at the end of the input.
func enqueue(queue chan<- int, orders int) error {
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		index, err := strconv.Atoi(input.Text())
		if err != nil || index < 0 || index >= orders {
			return fmt.Errorf("bug: no order %q", input.Text())
		}
		queue <- index
	}
	return input.Err()
}

// drain works on orders until ctx ends.
func drain(ctx context.Context, s counter, w way, orders []shop.Order, queue <-chan int) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case index := <-queue:
			result, deadlocks, err := s.place(ctx, w, orders[index])
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return fmt.Errorf("order %s: %w", orders[index].ID, err)
			}
			fmt.Println(result, deadlocks)
		}
	}
}
