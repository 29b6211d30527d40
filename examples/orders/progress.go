package main

import (
	"fmt"
	"os"
	"time"

	"github.com/txlock/txlock/internal/test/shop"
)

// progress shows how far a run is: on a terminal in one line that it overwrites, elsewhere as a
// line from time to time.
type progress struct {
	way       way
	total     int
	done      int
	outcomes  map[shop.Outcome]int
	deadlocks int

	terminal bool
	started  time.Time
}

func newProgress(w way, total int) *progress {
	output, err := os.Stdout.Stat()
	terminal := err == nil && output.Mode()&os.ModeCharDevice != 0
	return &progress{way: w, total: total, outcomes: make(map[shop.Outcome]int), terminal: terminal}
}

// follow returns when answers is closed.
func (p *progress) follow(answers <-chan answer) {
	p.started = time.Now()
	pace := time.Second
	if p.terminal {
		pace = 100 * time.Millisecond
	}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case a, more := <-answers:
			if !more {
				p.show()
				if p.terminal {
					fmt.Println()
				}
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
	text := fmt.Sprintf("  %-13s %3d %% %5.1f s  %d booked, %d refused, %d decided before", p.way, 100*p.done/p.total,
		time.Since(p.started).Seconds(), p.outcomes[shop.Booked], p.outcomes[shop.Refused], p.outcomes[shop.Known])
	if p.terminal {
		fmt.Print("\r" + text)
	} else {
		fmt.Println(text)
	}
}
