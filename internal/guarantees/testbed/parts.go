package testbed

import (
	"context"
	"fmt"
	"os"
	"time"

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

// relay hands a session from caller to caller until it is lost, and says how many callers got it
// after the process had been stopped.
func relay[Tx any](m *txlock.Mutex[Tx]) error {
	first, err := m.Lock(background)
	if err != nil {
		return err
	}
	last, late, times := time.Now(), 0, 0 // guarded by the lock
	lost := make(chan int, 1)
	for range 16 {
		go func() {
			for {
				lock, err := m.Lock(background)
				if err != nil {
					return
				}
				if now := time.Now(); late > 0 || now.Sub(last) > time.Second {
					late++
				} else {
					last = now
				}
				if times++; times == 1000 { // from now on, somebody always waits for the next turn
					fmt.Println("holds")
				}
				so := late
				if lock.Unlock(background) != nil {
					lost <- so
					return
				}
			}
		}()
	}
	if err := first.Unlock(background); err != nil {
		return err
	}
	fmt.Println(<-lost)
	return nil
}
