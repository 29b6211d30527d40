package contestants

import (
	"context"
	"time"
)

// unlockLimit is how long an unlock may take. A server that is silent for longer is considered
// gone.
const unlockLimit = 10 * time.Second

// unlocking returns the context for unlocking a lock that was taken under ctx. ctx itself may have
// ended by then.
func unlocking(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), unlockLimit)
}
