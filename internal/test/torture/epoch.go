package main

import (
	"cmp"
	"slices"
	"time"
)

// epoch is a part of the run between two moments at which all workers rest. Each epoch is checked
// on its own, so that a run of hours needs no more memory than one epoch.
type epoch struct {
	Number     int          `json:"number"`
	Seed       int64        `json:"seed"`
	Start, End int64        // times of now
	Operations []*operation `json:"operations"`
	Faults     []fault      `json:"faults"`
	Stalls     []fault      `json:"stalls,omitempty"` // in the order in which they began

	seenEarly     bool // InnoDB: see takenBack
	lease         time.Duration
	workers       int   // processes times goroutines
	mending       int64 // how long a cluster took to be whole again behind a switchover, at the most
	before, after *ledger
}

// hold is a time in which an operation certainly had the lock.
type hold struct {
	*operation
	end    int64 // when it gave the lock back, or a fault may have taken it
	broken bool  // it lost the lock, or may have
}

// grace is how long after a fault its effects may show: sessions end with their lease, and a pool
// may keep dead connections.
func (e *epoch) grace() int64 { return int64(2*e.lease + time.Second) }

// explanation returns the earliest fault or long stall that can have broken an operation, and the
// latest fault. Each is nil if there is none.
func (e *epoch) explanation(o *operation) (earliest, latest *fault) {
	return e.explanationUntil(o, cmp.Or(o.Return, o.Died, e.End))
}

func (e *epoch) explanationUntil(o *operation, end int64) (earliest, latest *fault) {
	explains := func(f *fault) bool {
		over := f.Healed + e.mending + e.grace()
		return (f.Victim == everybody || f.Victim == o.Process) && f.Start <= end && o.Call <= over
	}
	for i := range e.Faults {
		if f := &e.Faults[i]; explains(f) {
			latest = f
			if earliest == nil {
				earliest = f
			}
		}
	}
	for i := range e.Stalls {
		if s := &e.Stalls[i]; e.breaks(s) && explains(s) {
			if earliest == nil || s.Start < earliest.Start {
				earliest = s
			}
			break // all others began later
		}
	}
	return earliest, latest
}

// holds lists the holders of each key, in the order in which they learned of their grants.
func (e *epoch) holds() map[int][]hold {
	holds := map[int][]hold{}
	for _, o := range e.Operations {
		if o.Granted == 0 {
			continue
		}
		h := e.holdOf(o)
		for _, key := range o.Keys {
			holds[key] = append(holds[key], h)
		}
	}
	for _, list := range holds {
		slices.SortFunc(list, func(a, b hold) int { return cmp.Compare(a.Granted, b.Granted) })
	}
	return holds
}

func (e *epoch) holdOf(o *operation) hold {
	h := hold{operation: o, end: o.Released}
	earlier := func(at int64) {
		if at != 0 && (h.end == 0 || at < h.end) {
			h.end = at
		}
	}
	earlier(o.Deadline)
	earlier(o.Died)
	switch fault, _ := e.explanation(o); {
	case o.Outcome == done && o.Lost == 0:
	case fault != nil:
		h.broken = true
		earlier(max(o.Call, fault.Start))
	case !o.Expected && o.Died == 0:
		h.broken = true // another check reports this as a violation
		earlier(o.Granted)
	}
	return h
}
