package contest

import (
	"context"
	"errors"
	"time"
)

// Lock locks one key, and returns what unlocks it. The returned context is that of the work: it
// ends when the lock is lost.
type Lock func(ctx context.Context, key string) (held context.Context, unlock Unlock, err error)

// Unlock unlocks. It must not depend on the context of the work, which may have ended.
type Unlock func() error

// HoldEach is [Client.Hold] for a library whose lock has one key: it locks one after the other, in
// their order, which is the same for all and so avoids deadlocks.
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

// Poll tries until it succeeds, fails, or ctx ends.
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
