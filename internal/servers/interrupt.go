package servers

import "context"

// Interruptible runs tests, and returns before they do when ctx ends: then the servers that the caller has started can be stopped.
func Interruptible(ctx context.Context, run func() int) int {
	done := make(chan int, 1)
	go func() { done <- run() }()
	select {
	case code := <-done:
		return code
	case <-ctx.Done():
		return 130
	}
}
