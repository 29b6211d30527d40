package testbed

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
)

// crowd is a hundred callers that run the statement under the lock, until the process is killed.
func crowd[Tx any](c Client[Tx], m *txlock.Mutex[Tx]) error {
	work := func(ctx context.Context, tx Tx) error { return c.Exec(ctx, tx, os.Getenv("TXLOCK_TEST_STATEMENT")) }
	if err := m.Do(background, work); err != nil {
		return err
	}
	fmt.Println("busy")
	var group errgroup.Group
	for range 100 {
		group.Go(func() error {
			for {
				if err := m.Do(background, work); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}
