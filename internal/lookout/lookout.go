// Package lookout is where callers of one process wait for claims, without a connection. It needs
// no database.
package lookout

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// Every is how often the claims are looked at that callers wait for.
	Every = time.Second
	apart = 100 * time.Millisecond // between two looks, at least
	// longestTurn is how long a caller that is stuck keeps the others from trying.
	longestTurn = 2 * time.Second
	// atMost is how many claims one look is for.
	atMost = 1000
)

// Lookout is where callers wait for claims of the names K. As long as somebody waits it looks at
// all of their claims together: after a second, and when the first of them ends, though not at once
// after the last look. It wakes one caller of each claim that is free. One that leaves then, or
// misses, is no loss: the next look finds the claim free again.
type Lookout[K comparable] struct {
	closing context.Context
	look    Look[K]
	// turn is taken from here by one woken caller at a time, so that many claims that end together
	// take one connection.
	turn chan struct{}

	mu      sync.Mutex
	waiting map[K][]chan struct{} // each is closed to wake its caller
	timer   *time.Timer           // calls run; nil before somebody waits
	due     time.Time             // when the next look comes; zero: none is needed
	looked  time.Time             // when the last one began
	looking bool
}

// Look tells how long claims are held for; one that is not among them is free. It is not known
// while the server cannot be reached.
type Look[K comparable] func(ctx context.Context, claims []K) (left map[K]time.Duration, known bool)

// New returns a Lookout whose waits end with closing, for its cause.
func New[K comparable](closing context.Context, look Look[K]) *Lookout[K] {
	o := &Lookout[K]{closing: closing, look: look, turn: make(chan struct{}, 1), waiting: map[K][]chan struct{}{}}
	o.turn <- struct{}{}
	return o
}

// Wait returns when the claim may be free, with the turn to try, which release gives back. The
// first look comes after again, or earlier. For who has the claim himself it returns after again:
// what keeps him from it does not show.
func (o *Lookout[K]) Wait(ctx context.Context, claim K, again time.Duration, own bool) (release func(), err error) {
	woken := make(chan struct{})
	if own {
		defer time.AfterFunc(again, func() { close(woken) }).Stop()
	} else {
		o.enter(claim, woken, time.Now().Add(min(again, Every)))
		defer o.leave(claim, woken)
	}
	for _, next := range []chan struct{}{woken, o.turn} {
		select {
		case <-next:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-o.closing.Done():
			return nil, context.Cause(o.closing)
		}
	}
	giveBack := sync.OnceFunc(func() { o.turn <- struct{}{} })
	stuck := time.AfterFunc(longestTurn, giveBack)
	return func() {
		stuck.Stop()
		giveBack()
	}, nil
}

// Wake has the first who waits for a claim try.
func (o *Lookout[K]) Wake(claim K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if callers := o.waiting[claim]; len(callers) > 0 {
		o.waiting[claim] = callers[1:]
		close(callers[0])
	}
}

// Count says how many wait for a claim.
func (o *Lookout[K]) Count(claim K) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting[claim])
}

func (o *Lookout[K]) enter(claim K, woken chan struct{}, due time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting[claim] = append(o.waiting[claim], woken)
	o.lookBy(due)
}

func (o *Lookout[K]) leave(claim K, woken chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting[claim] = slices.DeleteFunc(o.waiting[claim], func(w chan struct{}) bool { return w == woken })
	if len(o.waiting[claim]) == 0 {
		delete(o.waiting, claim)
	}
}

// lookBy has the next look come when it is due, if that is earlier. It is called with the mutex
// held.
func (o *Lookout[K]) lookBy(due time.Time) {
	if earliest := o.looked.Add(apart); due.Before(earliest) {
		due = earliest
	}
	if !o.due.IsZero() && !due.Before(o.due) {
		return
	}
	o.due = due
	if o.timer == nil {
		o.timer = time.AfterFunc(time.Until(due), o.run)
	} else {
		o.timer.Reset(time.Until(due))
	}
}

// run looks, and comes again as long as somebody waits.
func (o *Lookout[K]) run() {
	claims := o.begin()
	if claims == nil {
		return
	}
	for some := range slices.Chunk(claims, atMost) {
		left, known := o.look(o.closing, some)
		now := time.Now()
		for _, claim := range some {
			switch {
			case !known:
			case left[claim] <= 0:
				o.Wake(claim)
			default:
				o.mu.Lock()
				o.lookBy(now.Add(left[claim]))
				o.mu.Unlock()
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.looking = false
	o.timer.Reset(time.Until(o.due))
}

// begin is what to look at now. It is nil when nobody waits, which is found under the mutex with
// which the next one enters, and when a timer that was set anew has fired before.
func (o *Lookout[K]) begin() (claims []K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.looking: // and run sets the timer at the end
	case time.Now().Before(o.due):
	case len(o.waiting) == 0 || o.closing.Err() != nil:
		o.due = time.Time{}
	default:
		o.looking, o.looked = true, time.Now()
		o.due = o.looked.Add(Every) // unless the look finds one that ends sooner
		claims = slices.Collect(maps.Keys(o.waiting))
	}
	return claims
}
