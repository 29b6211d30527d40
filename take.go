package txlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/lookout"
)

// Take is TryTake that waits while another has the claim, until ctx or Within ends that. Then the
// error is [ErrNotAcquired], and errors.As finds a [HeldError].
//
// Whoever waits takes no connection, and has no place in a queue: when the claim is over, or is
// released, any of them may be next. All that wait in a Locker share one look a second, and one at
// the end of each claim, but never more than ten a second. In the work of a Do, Take does not wait.
func (c *Claim[Tx]) Take(ctx context.Context, by string, d time.Duration) (*Claimed[Tx], error) {
	const verb = "Claim.Take"
	return c.taking(ctx, verb, by, d, func(ctx context.Context, change dialects.ClaimChange) (*Claimed[Tx], error) {
		wait := ctx
		if c.within > 0 {
			var cancel context.CancelFunc
			wait, cancel = context.WithTimeout(ctx, c.within)
			defer cancel()
		}
		return c.await(ctx, wait, verb, change)
	})
}

// await tries until the claim is taken, or wait ends. Wait bounds the waits of a try, and not its
// commit.
func (c *Claim[Tx]) await(ctx, wait context.Context, verb string, change dialects.ClaimChange) (*Claimed[Tx], error) {
	var last *HeldError
	said := func(err error) error { // with the last HeldError there was
		var held *HeldError
		if last != nil && !errors.As(err, &held) {
			err = fmt.Errorf("%w: %w", err, last)
		}
		return err
	}
	release := nothing
	try := func() (*Claimed[Tx], dialects.ClaimState, error) {
		defer func() { release() }()
		once := *c
		if deadline, limited := wait.Deadline(); limited && c.within > 0 {
			once.within = max(time.Until(deadline), 1)
		}
		return once.tryTake(ctx, verb, change)
	}
	for misses := 0; ; misses++ {
		held, state, err := try()
		if held != nil || !errors.Is(err, ErrNotAcquired) || c.locker.carriesOpen(ctx) {
			return held, err
		}
		errors.As(err, &last)
		if ended := wait.Err(); ended != nil {
			if !errors.Is(err, ended) {
				err = fmt.Errorf("%w (%w)", err, ended)
			}
			return nil, said(err)
		}
		// While nobody else is known to have it, somebody is changing it, or is late in a Do.
		again, own := min(firstPause<<min(misses, 10), lookout.Every), state.By == change.By
		if !own && state.Left > 0 {
			again = state.Left
		}
		if release, err = c.locker.lookout.Wait(wait, change.Hash, again, own); err != nil {
			return nil, c.wrap(verb, said(fmt.Errorf("%w: %w", ErrNotAcquired, err)))
		}
	}
}

const firstPause = 50 * time.Millisecond

// lookAtClaims is what the lookout asks. An error that does not pass by itself is for the callers
// to see for themselves.
func (l *Locker[Tx]) lookAtClaims(ctx context.Context, claims [][32]byte) (left map[[32]byte]time.Duration,
	known bool,
) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	states, err := l.readClaims(ctx, claims...)
	if err != nil && (ctx.Err() != nil || l.driver.Passing(err)) {
		return nil, false
	}
	left = make(map[[32]byte]time.Duration, len(states))
	for claim, state := range states {
		left[claim] = state.Left
	}
	return left, true
}

// readClaims reads the rows of claims.
func (l *Locker[Tx]) readClaims(ctx context.Context, claims ...[32]byte) (
	states map[[32]byte]dialects.ClaimState, err error,
) {
	found, err := l.find(ctx, false)
	if err == nil {
		states, err = l.driver.Claims(ctx, found.Name, claims...)
	}
	l.invalidate(err)
	return states, err
}
