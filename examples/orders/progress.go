package main

import (
	"fmt"
	"time"

	"github.com/txlock/txlock/internal/test/shop"
)

// progress shows how far a run is, in one line that it overwrites.
type progress struct {
	way       way
	total     int
	done      int
	outcomes  map[shop.Outcome]int
	deadlocks int
	started   time.Time
}

func newProgress(w way, total int) *progress {
	return &progress{way: w, total: total, outcomes: make(map[shop.Outcome]int), started: time.Now()}
}

// follow returns when answers is closed.
func (p *progress) follow(answers <-chan answer) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case a, more := <-answers:
			if !more {
				p.show()
				fmt.Println()
				return
			}
			p.done++
			p.outcomes[a.outcome]++
			p.deadlocks += a.deadlocks
		case <-tick.C:
			p.show()
		}
	}
}

func (p *progress) show() {
	fmt.Printf("\r  %-13s %3d %% %5.1f s  %d booked, %d refused, %d decided before", p.way, 100*p.done/p.total,
		time.Since(p.started).Seconds(), p.outcomes[shop.Booked], p.outcomes[shop.Refused], p.outcomes[shop.Known])
}
