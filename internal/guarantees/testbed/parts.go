package testbed

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
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

// lossTold is a log in which nothing but a loss is expected.
type lossTold chan struct{}

// Enabled implements slog.Handler.
func (lossTold) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l lossTold) Handle(context.Context, slog.Record) error {
	select {
	case l <- struct{}{}:
	default:
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (l lossTold) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l lossTold) WithGroup(string) slog.Handler { return l }

// stopped is a pause between two callers of relay after which the process has been stopped: no
// longer than its lease without a heartbeat, and longer than a loaded machine makes it wait.
const stopped = 2 * time.Second

// relay hands a session from caller to caller until its loss is known, and says how many callers
// got it after the process had been stopped.
func relay[Tx any](m *txlock.Mutex[Tx], lost lossTold) error {
	var last time.Time // guarded by the lock, as times is
	times := 0
	var late atomic.Int64
	for range 16 {
		go func() {
			for {
				lock, err := m.Lock(background)
				if err != nil {
					return
				}
				now := time.Now()
				if late.Load() > 0 || times >= 1000 && now.Sub(last) > stopped {
					late.Add(1)
				}
				last = now
				if times++; times == 1000 { // from now on, somebody always waits for the next turn
					fmt.Println("holds")
				}
				if lock.Unlock(background) != nil {
					return
				}
			}
		}()
	}
	<-lost
	fmt.Println(late.Load())
	return nil
}
