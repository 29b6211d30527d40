package contest

import (
	"context"
	"errors"
	"time"
)

// Lock locks one key, and returns the function that unlocks it. The returned context is for the
// work: it ends when the lock is lost.
type Lock func(ctx context.Context, key string) (held context.Context, unlock Unlock, err error)

// Unlock unlocks. It must not depend on the context of the work, which may have ended.
type Unlock func() error

// HoldEach is [Client.Hold] for a library whose lock has one key. It locks one key after another.
// All clients have the same order, which avoids deadlocks.
func HoldEach(ctx context.Context, keys []string, lock Lock, work Work) (err error) {
	held := ctx
	for _, key := range keys {
		var unlock Unlock
		if held, unlock, err = lock(held, key); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unlock()) }()
	}
	return work(held, nil)
}

// unlockLimit is how long an unlock may take. A server that is silent for longer is considered
// gone.
const unlockLimit = 10 * time.Second

// Unlocking returns the context for unlocking a lock that was taken under ctx. ctx itself may have
// ended by then.
func Unlocking(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), unlockLimit)
}
