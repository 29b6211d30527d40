package main

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// processStalled is no fault that is caused: a busy machine did not run the process for a while. A
// lock cannot help what comes of that, and a checker that guesses how long it may last is wrong on
// some machine. So every process measures it.
const processStalled faultKind = "process not run by the machine"

const (
	tick = 10 * time.Millisecond
	// shortestStall is told: a few that are shorter do not add up to a tenth of a lease, which is
	// 100 ms at least.
	shortestStall = 25 * time.Millisecond
)

// clock notices when its process was not run: it looks at the time so often that a gap tells.
type clock struct {
	mu     sync.Mutex
	last   int64
	report func(from, to int64)
}

func newClock(report func(from, to int64)) *clock {
	return &clock{last: now(), report: report}
}

// run looks until stop is closed.
func (c *clock) run(stop <-chan struct{}) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.look()
		case <-stop:
			return
		}
	}
}

// look reports the gap since the last look, if it is a stall. What is said behind it finds the
// stall reported.
func (c *clock) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := now()
	if at-c.last > int64(shortestStall) {
		c.report(c.last, at)
	}
	c.last = at
}

// inOrder are the stalls of an epoch in the order in which they began.
func inOrder(stalls []fault) []fault {
	slices.SortFunc(stalls, func(a, b fault) int { return cmp.Compare(a.Start, b.Start) })
	return stalls
}

// stalled is for how long, between two moments, a process was not run, or the parent, through whose
// network all of them go.
func (e *epoch) stalled(process int, from, to int64) (total int64) {
	for _, s := range e.Stalls {
		if s.Victim != process && s.Victim != everybody {
			continue
		}
		if begin, end := max(s.Start, from), min(s.Healed, to); end > begin {
			total += end - begin
			from = end // what two stalled at once counts once
		}
	}
	return total
}

// unprovoked is for how long in all a process was not run, besides what stopping it was to do.
func (e *epoch) unprovoked() (total time.Duration) {
	for _, s := range e.Stalls {
		if !slices.ContainsFunc(e.Faults, func(f fault) bool {
			return f.Kind == stopWorker && f.Victim == s.Victim && f.Start < s.Healed && s.Start < f.Healed
		}) {
			total += time.Duration(s.Healed - s.Start)
		}
	}
	return total
}

// breaks reports whether a stall can have ended a session: that takes nearly a lease, if need be of
// a few stalls.
func (e *epoch) breaks(stall *fault) bool { return stall.Healed-stall.Start >= int64(e.lease/4) }
