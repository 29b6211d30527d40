package servers

import (
	"context"
	"fmt"
	"io"
	"os"
)

// RunOn starts a server of each kind, has prepare make of it what tests need, and runs them.
// Whatever happens, and also when ctx ends, each server is stopped behind that, and before it what
// prepare returned is closed, also beside an error. It returns an exit code.
func RunOn(ctx context.Context, kinds []Kind, prepare func(*Server) (io.Closer, error), run func() int) int {
	for _, kind := range kinds {
		server, err := Start(ctx, kind, Options{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Stop()
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
