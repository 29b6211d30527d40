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

// line is who waits for the same.
type line struct {
	callers int
	turns   chan chan<- bool
}

// New returns a Lookout whose waits end with closing, for its cause.
func New(closing context.Context, look Look) *Lookout {
	return &Lookout{closing: closing, look: look, soon: make(chan struct{}, 1), waiting: map[Want]*line{}}
}

// Wait returns when the claim may be free, with the turn to try. Done ends the turn, and says
// whether it was taken. Left is how long another has it, as far as is known.
func (o *Lookout) Wait(ctx context.Context, want Want, left time.Duration) (done func(taken bool), err error) {
	l := o.enter(want)
	defer o.leave(want, l)
	defer time.AfterFunc(max(left, apart), o.Wake).Stop()
	select {
	case turn := <-l.turns:
		return func(taken bool) { turn <- taken }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-o.closing.Done():
		return nil, context.Cause(o.closing)
	}
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

// run looks as long as somebody waits. Who has taken a claim has not kept it from those who say the
// same.
func (o *Lookout) run() {
	for {
		select {
		case <-time.After(every):
		case <-o.soon:
		case <-o.closing.Done():
		}
		wants := o.wants()
		if wants == nil {
			return
		}
		misses, taken := 0, map[[32]byte]bool{}
		for _, want := range o.look(o.closing, wants) {
			for again := misses < mostMisses && !taken[want.Claim]; again; {
				took, asked := o.giveTurn(want)
				if again = took; took {
					taken[want.Claim] = true
				} else if asked {
					misses++
				}
			}
		}
		time.Sleep(apart * time.Duration(1+misses))
	}
}

// wants is nil when there is nothing to look for any more.
func (o *Lookout) wants() []Want {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running = len(o.waiting) > 0 && o.closing.Err() == nil; !o.running {
		return nil
	}
	return slices.Collect(maps.Keys(o.waiting))
}

// giveTurn gives a turn to a caller, if there is one left.
func (o *Lookout) giveTurn(want Want) (taken, asked bool) {
	o.mu.Lock()
	l := o.waiting[want]
	o.mu.Unlock()
	if l == nil {
		return false, false
	}
	turn := make(chan bool, 1)
	select {
	case l.turns <- turn:
	default:
		return false, false
	}
	select {
	case taken = <-turn:
	case <-time.After(longestTurn):
	}
	return taken, true
}
