package crew

import (
	"context"
	"sync/atomic"
	"time"
)

// Settle is the time from Go until a crowd is complete, and is measured.
const Settle = Ramp + 200*time.Millisecond

// window is the time in which a worker measures. It begins after Settle, and ends with its context.
type window struct {
	open         atomic.Bool
	began, ended int64
}

// watch opens and closes the window, and calls inside while it is open.
func (w *window) watch(ctx context.Context, inside func(ctx context.Context)) {
	Wait(ctx, Settle)
	w.began = Now()
	w.open.Store(true)
	inside(ctx)
	<-ctx.Done()
	w.open.Store(false)
	w.ended = Now()
}

func (w *window) took() time.Duration { return time.Duration(w.ended - w.began) }
