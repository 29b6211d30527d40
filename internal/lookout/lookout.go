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
	// apart is between two statements that take nothing, at least.
	apart = 125 * time.Millisecond
	// longestTurn is how long a caller that is stuck keeps the others from trying.
	longestTurn = 2 * time.Second
	// atMost is how many wants one look is for.
	atMost = 1000
	// mostMisses ends the turns that come from one look: it has been overtaken.
	mostMisses = 3
)

// Want is a claim, and who waits for it.
type Want struct {
	Claim [32]byte
	By    string
}

// Look tells which of these claims are free to who wants them, and when the next of the others ends;
// 0: it is not known.
type Look func(ctx context.Context, wants []Want) (free []Want, next time.Duration)

// Lookout is where callers wait. As long as somebody waits it looks at all of their claims
// together: after a second, and when the first of them ends, though not at once after the last
// look. One caller at a time gets a turn to try: so many claims that end together take one
// connection. One that leaves then, or misses, is no loss: the next look finds the claim free again.
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
	if left < Every {
		defer time.AfterFunc(max(left, apart), o.Wake).Stop()
	}
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
	if !o.running {
		o.running = true
		go o.run()
	}
	l := o.waiting[want]
	if l == nil {
		l = &line{turns: make(chan chan<- bool)}
		o.waiting[want] = l
	}
	l.callers++
	return l
}

func (o *Lookout) leave(want Want, l *line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l.callers--; l.callers > 0 {
		return
	}
	if delete(o.waiting, want); len(o.waiting) == 0 {
		o.Wake() // and run ends
	}
}

// run looks as long as somebody waits.
func (o *Lookout) run() {
	for begun, next := time.Now(), Every; ; {
		select {
		case <-time.After(next - time.Since(begun)):
		case <-o.soon:
		case <-o.closing.Done():
		}
		begun, next = time.Now(), Every
		for some := range slices.Chunk(o.wants(), atMost) {
			free, ends := o.look(o.closing, some)
			if ends > 0 {
				next = min(next, time.Since(begun)+ends)
			}
			time.Sleep(apart * time.Duration(1+o.giveTurns(free)))
		}
		if o.isOver() {
			return
		}
	}
}

func (o *Lookout) wants() []Want {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.waiting))
}

func (o *Lookout) isOver() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running = len(o.waiting) > 0 && o.closing.Err() == nil
	return !o.running
}

// giveTurns gives turns to who wants what is free, and tells how many have missed. Who has taken a
// claim has not kept it from those who say the same.
func (o *Lookout) giveTurns(free []Want) (misses int) {
	taken := map[[32]byte]bool{}
	for _, want := range free {
		if taken[want.Claim] || misses == mostMisses {
			continue
		}
		for asked := true; asked; {
			var took bool
			took, asked = o.giveTurn(want)
			switch {
			case took:
				taken[want.Claim] = true
			case asked:
				misses++
				asked = false
			}
		}
	}
	return misses
}

// giveTurn gives one to a caller, if there is one left.
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
