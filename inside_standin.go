package txlock

import (
	"context"
	"errors"
)

// Stand-in, to be dropped at merge: the core declares both.

// ErrInsideLock is a stand-in.
var ErrInsideLock = errors.New("stand-in")

// Apart is a stand-in.
func Apart(ctx context.Context) context.Context { return ctx }
