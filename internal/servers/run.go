package servers

import (
	"context"
	"fmt"
	"io"
	"os"
)

// RunOn starts a server of each kind, calls prepare with each of them, calls run, and returns an
// exit code. At the end, and also on an error or when ctx ends, it closes what prepare returned and
// then stops the servers. What prepare returns beside an error is closed too.
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
