package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// RunOn starts a server of each kind, all at once, has prepare make of each what tests need, one
// after the other, and runs them. Whatever happens, and also when ctx ends, it stops each server,
// after closing what prepare returned, also beside an error. It returns an exit code.
func RunOn(ctx context.Context, kinds []Kind, prepare func(*Server) (io.Closer, error), run func() int) int {
	started, failed := make([]*Server, len(kinds)), make([]error, len(kinds))
	var group sync.WaitGroup
	for i, kind := range kinds {
		group.Go(func() { started[i], failed[i] = Start(ctx, kind, Options{}) })
	}
	group.Wait()
	for _, server := range started {
		if server != nil {
			defer server.Stop()
		}
	}
	if err := errors.Join(failed...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, server := range started {
		prepared, err := prepare(server)
		if prepared != nil {
			defer prepared.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return interruptible(ctx, run)
}

// interruptible returns before run does when ctx ends: then servers can be stopped.
func interruptible(ctx context.Context, run func() int) int {
	done := make(chan int, 1)
	go func() { done <- run() }()
	select {
	case code := <-done:
		return code
	case <-ctx.Done():
		return 130
	}
}
