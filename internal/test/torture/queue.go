package main

import (
	"fmt"
	"time"
)

// headStart is how much earlier a waiter must have called to count as overtaken. The time in which
// its process did not run is not part of it. A call reaches the server's queue with a delay,
// because it may have to open a connection.
const headStart = 50 * time.Millisecond

// overtaken counts, for each waiter of key, the others that called later and got the lock earlier.
// It returns the highest count. It looks only at the time before the first fault of the epoch,
// because a fault takes waiters out of the queue.
func (e *epoch) overtaken(key int, holds []hold) (most int, waiter *operation, by []*operation) {
	until := e.End
	for _, f := range e.Faults {
		until = min(until, f.Start)
	}
	// Holds by operations on this key only, in the order of the grants. Readers do not queue in the
	// process, and come to the server before writers that do.
	var queue []hold
	for _, h := range holds {
		if h.Keys[len(h.Keys)-1] == key && (len(h.Keys) == 1 || h.Verb.permits()) && !h.Verb.tries() &&
			!h.Verb.shares() && h.Granted < until {
			queue = append(queue, h)
		}
	}
	for i, w := range queue {
		var others []*operation
		for j := i - 1; j >= 0 && queue[j].Granted > w.Call; j-- {
			if later := queue[j].Call; later-e.stalled(w.Process, w.Call, later) > w.Call+int64(headStart) {
				others = append(others, queue[j].operation)
			}
		}
		if len(others) > most {
			most, waiter, by = len(others), w.operation, others
		}
	}
	return most, waiter, by
}

// checkQueue allows as many overtakings as there are goroutines. On a machine with few processors,
// all of them can be on their way to the queue together with the waiter, and InnoDB's queue is not
// strictly in order. A lock without a queue shows far more: there a waiter is overtaken as long as
// others arrive.
func (e *epoch) checkQueue(key int, holds []hold) []violation {
	most, waiter, by := e.overtaken(key, holds)
	if most <= e.workers {
		return nil
	}
	return []violation{{
		ruleQueue, fmt.Sprintf("key %d: a waiter was overtaken %d times, by operations that called more than %v later",
			key, most, headStart),
		append([]*operation{waiter}, by...),
	}}
}
