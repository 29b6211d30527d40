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
	// every is how often the claims are looked at that callers wait for.
	every = time.Second
	// apart is between two statements that take nothing, at least.
	apart = 125 * time.Millisecond
	// longestTurn is how long a caller that is stuck keeps the others from trying.
	longestTurn = 2 * time.Second
	// mostMisses ends the turns that come from one look: it has been overtaken.
	mostMisses = 3
)

// Want is a claim, and who waits for it.
type Want struct {
	Claim [32]byte
	By    string
}

// Look tells which of these claims are free to who wants them.
type Look func(ctx context.Context, wants []Want) (free []Want)

// Lookout is where callers wait. As long as somebody waits it looks at all of their claims
// together: after a second, and when one of them ends, though not at once after the last look. One
// caller at a time gets a turn to try: so many claims that end together take one connection. One
// that leaves then, or misses, is no loss: the next look finds the claim free again.
type Lookout struct {
	closing context.Context
	look    Look
	soon    chan struct{} // has the next look come soon

	mu      sync.Mutex
	waiting map[Want]*line
	running bool
}

// line is who waits for the same. A turn is where to say whether it was taken.
type line struct {
	callers int
	turns   chan chan<- bool
}

// New returns a Lookout whose waits end with closing, for its cause.
func New(closing context.Context, look Look) *Lookout {
	return &Lookout{closing: closing, look: look, soon: make(chan struct{}, 1), waiting: map[Want]*line{}}
}

// Wait calls try each time the claim may be free, until that says that it is not to be called
// again. Left is how long another has the claim, as far as is known.
func (o *Lookout) Wait(ctx context.Context, want Want, left time.Duration,
	try func() (left time.Duration, again bool),
) (err error) {
	l := o.enter(want)
	defer o.leave(want, l)
	for again := true; again && err == nil; {
		ends := time.AfterFunc(max(left, apart), o.Wake)
		select {
		case turn := <-l.turns:
			left, again = try()
			turn <- !again
		case <-ctx.Done():
			err = ctx.Err()
		case <-o.closing.Done():
			err = context.Cause(o.closing)
		}
		ends.Stop()
	}
	return err
}

// Wake has the next look come soon.
func (o *Lookout) Wake() {
	select {
	case o.soon <- struct{}{}:
	default:
	}
}

func (o *Lookout) enter(want Want) *line {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.waiting[want]
	if l == nil {
		l = &line{turns: make(chan chan<- bool)}
		o.waiting[want] = l
	}
	l.callers++
	if !o.running {
		o.running = true
		go o.run()
	}
	return l
}

func (o *Lookout) leave(want Want, l *line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l.callers--; l.callers == 0 {
		delete(o.waiting, want)
	}
	if len(o.waiting) == 0 {
		o.Wake() // and run ends
	}
}

// run looks as long as somebody waits. Who has taken a claim has kept it from those who say another
// name.
func (o *Lookout) run() {
	for {
		select {
		case <-time.After(every):
		case <-o.soon:
		case <-o.closing.Done():
		}
		o.mu.Lock()
		wants := slices.Collect(maps.Keys(o.waiting))
		o.running = len(wants) > 0 && o.closing.Err() == nil
		running := o.running
		o.mu.Unlock()
		if !running {
			return
		}
		misses, taken := 0, map[[32]byte]bool{}
		for _, want := range o.look(o.closing, wants) {
			for took := !taken[want.Claim]; took && misses < mostMisses; {
				if took = o.giveTurn(want, &misses); took {
					taken[want.Claim] = true
				}
			}
		}
		time.Sleep(apart * time.Duration(1+misses))
	}
}

// giveTurn gives a turn to a caller, if there is one left.
func (o *Lookout) giveTurn(want Want, misses *int) (took bool) {
	o.mu.Lock()
	l := o.waiting[want]
	o.mu.Unlock()
	if l == nil {
		return false
	}
	turn := make(chan bool, 1)
	select {
	case l.turns <- turn:
	default:
		return false
	}
	select {
	case took = <-turn:
	case <-time.After(longestTurn):
	}
	if !took {
		*misses++
	}
	return took
}
