package contest

import (
	"context"
	"time"
)

// Poll tries again until it succeeds, fails, or ctx ends.
func Poll(ctx context.Context, every time.Duration, try func() (done bool, err error)) error {
	for {
		done, err := try()
		if done || err != nil {
			return err
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// unlockLimit is how long an unlock may take. A server that is silent for longer is considered
// gone.
const unlockLimit = 10 * time.Second

// Unlocking returns the context for unlocking a lock that was taken under ctx. ctx itself may have
// ended by then.
func Unlocking(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), unlockLimit)
}
