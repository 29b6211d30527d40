package txlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/txlock/txlock/dialects"
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
		again, own := min(firstPause<<min(misses, 10), lookEvery), state.By == change.By
		if !own && state.Left > 0 {
			again = state.Left
		}
		if release, err = c.locker.lookout.wait(wait, change.Hash, again, own); err != nil {
			return nil, c.wrap(verb, said(fmt.Errorf("%w: %w", ErrNotAcquired, err)))
		}
	}
}

const (
	// lookEvery is how often a Locker looks at the claims that its callers wait for.
	lookEvery  = time.Second
	lookApart  = 100 * time.Millisecond // at least
	firstPause = 50 * time.Millisecond
	// longestTurn is how long a caller that is stuck keeps the others from trying.
	longestTurn = 2 * time.Second
	// lookAtMost is how many claims one query asks for.
	lookAtMost = 1000
)

// lookout is where callers wait for claims, without a connection. A goroutine that lives as long as
// somebody waits looks at all of their claims together: after a second, and when the first of them
// ends, though not at once after the last look. It wakes one caller of each claim that is free. One
// that leaves then, or misses, is no loss: the next look finds the claim free again.
type lookout[Tx any] struct {
	locker *Locker[Tx]
	// turn is for one woken caller at a time, so that many claims that end together take one
	// connection.
	turn chan struct{}

	mu      sync.Mutex
	waiting map[[32]byte][]chan struct{} // each is closed to wake its caller
	looking bool                         // run runs
	looked  time.Time                    // when the last look began
	due     time.Time                    // of the next
	sooner  chan struct{}                // due is earlier than it was
}

func newLookout[Tx any](l *Locker[Tx]) *lookout[Tx] {
	return &lookout[Tx]{
		locker: l, turn: make(chan struct{}, 1), waiting: map[[32]byte][]chan struct{}{},
		sooner: make(chan struct{}, 1),
	}
}

// wait returns when the claim may be free, with the turn to try, which release gives back. The
// first look comes after again, or earlier. For who has the claim himself it returns after again:
// what keeps him from it does not show.
func (o *lookout[Tx]) wait(ctx context.Context, claim [32]byte, again time.Duration, own bool) (
	release func(), err error,
) {
	woken := make(chan struct{})
	if own {
		defer time.AfterFunc(again, func() { close(woken) }).Stop()
	} else {
		o.enter(claim, woken, time.Now().Add(min(again, lookEvery)))
		defer o.leave(claim, woken)
	}
	select {
	case <-woken:
	case <-ctx.Done():
		return nothing, ctx.Err()
	case <-o.locker.closing.Done():
		return nothing, ErrClosed
	}
	select {
	case o.turn <- struct{}{}:
		release := sync.OnceFunc(func() { <-o.turn })
		stuck := time.AfterFunc(longestTurn, release)
		return func() {
			stuck.Stop()
			release()
		}, nil
	case <-ctx.Done():
		return nothing, ctx.Err()
	case <-o.locker.closing.Done():
		return nothing, ErrClosed
	}
}

func (o *lookout[Tx]) enter(claim [32]byte, woken chan struct{}, due time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting[claim] = append(o.waiting[claim], woken)
	switch {
	case !o.looking:
		o.looking, o.due = true, due.Add(lookEvery) // which is moved to
		o.advance(due)
		go o.run()
	case o.advance(due):
		select {
		case o.sooner <- struct{}{}:
		default: // run has not read of an earlier change yet
		}
	}
}

// advance has the next look come when it is due, if that is earlier.
func (o *lookout[Tx]) advance(due time.Time) bool {
	if earliest := o.looked.Add(lookApart); due.Before(earliest) {
		due = earliest
	}
	if !due.Before(o.due) {
		return false
	}
	o.due = due
	return true
}

func (o *lookout[Tx]) leave(claim [32]byte, woken chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting[claim] = slices.DeleteFunc(o.waiting[claim], func(w chan struct{}) bool { return w == woken })
	if len(o.waiting[claim]) == 0 {
		delete(o.waiting, claim)
	}
}

// wake has the first who waits for a claim try.
func (o *lookout[Tx]) wake(claim [32]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if callers := o.waiting[claim]; len(callers) > 0 {
		o.waiting[claim] = callers[1:]
		close(callers[0])
	}
}

// count says how many wait for a claim.
func (o *lookout[Tx]) count(claim [32]byte) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting[claim])
}

// run looks until nobody waits. That is found under the mutex with which the next one enters.
func (o *lookout[Tx]) run() {
	for {
		claims, pause, going := o.next()
		switch {
		case !going:
			return
		case pause <= 0:
			for some := range slices.Chunk(claims, lookAtMost) {
				o.look(some)
			}
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-o.sooner:
		case <-o.locker.closing.Done():
		}
		timer.Stop()
	}
}

// next is what to look at now, or the pause until then.
func (o *lookout[Tx]) next() (claims [][32]byte, pause time.Duration, going bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.looking = len(o.waiting) > 0 && o.locker.closing.Err() == nil
	pause = time.Until(o.due)
	if !o.looking || pause > 0 {
		return nil, pause, o.looking
	}
	o.looked = time.Now()
	o.due = o.looked.Add(lookEvery) // unless the look finds one that ends sooner
	return slices.Collect(maps.Keys(o.waiting)), 0, true
}

// look wakes who may try. While the server cannot be reached that is nobody. Any other error is for
// the callers to see for themselves.
func (o *lookout[Tx]) look(claims [][32]byte) {
	l := o.locker
	ctx, cancel := context.WithTimeout(l.closing, releaseTimeout)
	defer cancel()
	var states map[[32]byte]dialects.ClaimState
	found, err := l.find(ctx, false)
	if err == nil {
		states, err = l.driver.Claims(ctx, found.Name, claims...)
	}
	if err != nil && (ctx.Err() != nil || l.driver.Passing(err)) {
		return
	}
	l.invalidate(err)
	asked := time.Now()
	for _, claim := range claims {
		left := states[claim].Left
		if left <= 0 {
			o.wake(claim)
			continue
		}
		o.mu.Lock()
		o.advance(asked.Add(left))
		o.mu.Unlock()
	}
}
