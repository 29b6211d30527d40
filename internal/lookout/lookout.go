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
	every       = time.Second            // is a look at the claims that callers wait for
	apart       = 125 * time.Millisecond // are two statements that take nothing, at least
	longestTurn = 2 * time.Second        // is for how long a caller that is stuck keeps the others waiting
)

// Want is a claim, and who wants it.
type Want struct{ Claim, By string }

// Lookout is where callers wait. As long as somebody does, it looks at all of their claims at once,
// and then has one after the other try, in the order in which they came: so many claims that end
// together take one connection. A miss says that the look is out of date.
type Lookout struct {
	closing context.Context
	look    func(ctx context.Context, wants []Want) (free []Want)
	soon    chan struct{} // has the next look come soon

	mu      sync.Mutex
	callers []caller
	running bool
}

type caller struct {
	Want
	turn chan chan<- bool // gets where to say whether the claim was taken, with room for that
}

// New returns a Lookout whose waits end with closing. Look says which claims may be taken.
func New(closing context.Context, look func(ctx context.Context, wants []Want) (free []Want)) *Lookout {
	return &Lookout{closing: closing, look: look, soon: make(chan struct{}, 1)}
}

// Wait calls try, and then each time the claim may be free, until that says that it is not to be
// called again. Left is how long another has the claim.
func (o *Lookout) Wait(ctx context.Context, want Want, try func() (left time.Duration, again bool)) {
	for left, again := try(); again; {
		taken := o.awaitTurn(ctx, want, left)
		if taken == nil {
			return
		}
		left, again = try() // may panic: then the turn ends by itself
		taken <- !again
	}
}

// awaitTurn returns where to say whether the claim was taken, or nil when the wait was ended.
func (o *Lookout) awaitTurn(ctx context.Context, want Want, left time.Duration) (taken chan<- bool) {
	c := caller{want, make(chan chan<- bool)}
	o.mu.Lock()
	o.callers = append(o.callers, c)
	if !o.running {
		o.running = true
		go o.run()
	}
	o.mu.Unlock()
	defer time.AfterFunc(left, o.Wake).Stop()
	select {
	case taken = <-c.turn:
	case <-ctx.Done():
	case <-o.closing.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.callers = slices.DeleteFunc(o.callers, func(other caller) bool { return other == c })
	return taken
}

// Wake has the next look come soon.
func (o *Lookout) Wake() {
	select {
	case o.soon <- struct{}{}:
	default:
	}
}

// run looks as long as somebody waits.
func (o *Lookout) run() {
	for ; ; time.Sleep(apart) {
		select {
		case <-time.After(every):
		case <-o.soon:
		}
		o.mu.Lock()
		callers := slices.Clone(o.callers)
		o.running = len(callers) > 0
		o.mu.Unlock()
		if len(callers) == 0 {
			return
		}
		free, holder := map[Want]bool{}, map[string]string{} // of a claim, who has taken it since the look
		for _, c := range callers {
			free[c.Want] = false
		}
		for _, want := range o.look(o.closing, slices.Collect(maps.Keys(free))) {
			free[want] = true
		}
		for _, c := range callers {
			if by, is := holder[c.Claim]; !free[c.Want] || is && by != c.By {
				continue
			}
			taken := make(chan bool, 1)
			select {
			case c.turn <- taken:
			default: // it has gone
				continue
			}
			time.AfterFunc(longestTurn, func() { taken <- false })
			if holder[c.Claim] = c.By; !<-taken {
				o.Wake()
				time.Sleep(apart)
				break
			}
		}
	}
}
