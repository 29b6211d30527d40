package contestants

import (
	"context"
	"time"
)

// unlockLimit is how long an unlock may take. A server that is silent for longer is taken for gone.
const unlockLimit = 10 * time.Second

// unlocking is the context for the unlock of a lock that was taken under ctx, which may have ended
// by then.
func unlocking(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), unlockLimit)
}
