package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// RunOn starts a server of each kind, all at once, calls prepare with one after the other, calls
// run, and returns an exit code. At the end, and also on an error or when ctx ends, it closes what
// prepare returned and then stops the servers. What prepare returns beside an error is closed too.
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

// interruptible does not wait for run when ctx ends, so that servers can be stopped.
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
