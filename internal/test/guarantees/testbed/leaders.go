package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
)

// lead leads an election, and says so with its term, and why each term ended. When it finds that
// the process was stopped, it runs the statement, with its term in the place of TERM, before it
// looks at its context: the late write of one that does not know.
func lead[Tx any](c Client[Tx], e *txlock.Election[Tx], dsn string) error {
	statement := os.Getenv("TXLOCK_TEST_STATEMENT")
	return e.Lead(background, func(ctx context.Context, term int64) error {
		fmt.Println("leads", term)
		if statement == "" {
			<-ctx.Done()
		} else if err := writeLate(c, dsn, strings.ReplaceAll(statement, "TERM", fmt.Sprint(term))); err != nil {
			return err
		}
		<-ctx.Done()
		fmt.Println(outcome(context.Cause(ctx)))
		return nil
	})
}

// writeLate runs a statement when the process has been stopped.
func writeLate[Tx any](c Client[Tx], dsn, statement string) error {
	for last := time.Now(); time.Since(last) < time.Second; {
		last = time.Now()
		<-time.After(time.Millisecond)
	}
	tx, leave, err := c.Start(dsn, 0)
	if err != nil {
		return err
	}
	defer leave()
	if err := c.Exec(background, tx, statement); err != nil {
		return err
	}
	if err := c.End(background, tx, true); err != nil {
		return err
	}
	fmt.Println("wrote")
	return nil
}

// candidates are many that campaign in one process, until there were twenty terms.
func candidates[Tx any](e *txlock.Election[Tx]) error {
	number, err := strconv.Atoi(os.Getenv("TXLOCK_TEST_STATEMENT"))
	if err != nil {
		return err
	}
	const enough = 20
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	terms := 0 // guarded by the leadership
	var group errgroup.Group
	for range number {
		group.Go(func() error {
			err := e.Lead(ctx, func(_ context.Context, term int64) error {
				fmt.Println("leads", term)
				if terms++; terms == enough {
					cancel()
				}
				return nil
			})
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		})
	}
	fmt.Println("campaigns")
	return group.Wait()
}
