// Package lookout is where callers of one process wait for claims, without a connection. It needs
// no database.
package lookout

import (
	"context"
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
type Want struct {
	Claim [32]byte
	By    string
}

// Lookout is where callers wait. As long as somebody does, it looks at all of their claims at once,
// and then has one after the other try, in the order in which they came: so many claims that end
// together take one connection. A miss says that the look is out of date.
type Lookout struct {
	closing context.Context
	look    func(ctx context.Context, free map[Want]bool)
	soon    chan struct{} // has the next look come soon

	mu      sync.Mutex
	callers []*caller
	running bool
}

type caller struct {
	Want
	turn chan chan<- bool // gets where to say whether the claim was taken, with room for that
}

// New returns a Lookout whose waits end with closing. Look says which of its keys are free.
func New(closing context.Context, look func(ctx context.Context, free map[Want]bool)) *Lookout {
	return &Lookout{closing: closing, look: look, soon: make(chan struct{}, 1)}
}

// Wait calls try, and then each time the claim may be free, until that says that it is not to be
// called again. Left is how long another has the claim.
func (o *Lookout) Wait(ctx context.Context, want Want, try func() (left time.Duration, again bool)) {
	for left, again := try(); again; {
		c := &caller{want, make(chan chan<- bool)}
		o.mu.Lock()
		o.callers = append(o.callers, c)
		if !o.running {
			o.running = true
			go o.run()
		}
		o.mu.Unlock()
		ends := time.AfterFunc(left, o.Wake)
		var turn chan<- bool
		select {
		case turn = <-c.turn:
		case <-ctx.Done():
		case <-o.closing.Done():
		}
		ends.Stop()
		o.mu.Lock()
		o.callers = slices.DeleteFunc(o.callers, func(other *caller) bool { return other == c })
		o.mu.Unlock()
		if again = turn != nil; again { // try may panic: the caller has left before
			left, again = try()
			turn <- !again
		}
	}
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
	for {
		select {
		case <-time.After(every):
		case <-o.soon:
		}
		free, taken := map[Want]bool{}, map[[32]byte]string{}
		o.mu.Lock()
		callers := slices.Clone(o.callers)
		o.running = len(callers) > 0
		o.mu.Unlock()
		if len(callers) == 0 {
			return
		}
		for _, c := range callers {
			free[c.Want] = false
		}
		o.look(o.closing, free)
		for _, c := range callers {
			if by, is := taken[c.Claim]; !free[c.Want] || is && by != c.By {
				continue
			}
			answer := make(chan bool, 1)
			select {
			case c.turn <- answer:
			default: // it has gone, or has a turn already
				continue
			}
			time.AfterFunc(longestTurn, func() { answer <- false })
			if taken[c.Claim] = c.By; !<-answer {
				o.Wake()
				time.Sleep(apart)
				break
			}
		}
		time.Sleep(apart)
	}
}
