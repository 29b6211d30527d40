package main

import (
	"fmt"
	"time"
)

// headStart is by how much a waiter must have called earlier to count as overtaken, without the
// time in which the machine did not run it. A call reaches the server's queue some time after it
// was made: a connection may have to be opened for it.
const headStart = 50 * time.Millisecond

// overtaken counts, for the waiter of key that was overtaken most often, the others that called
// later and had the lock earlier. It looks at the stretch before the first fault of the epoch: a
// fault takes waiters out of the queue.
func (e *epoch) overtaken(key int, holds []hold) (most int, waiter *operation, by []*operation) {
	until := e.End
	for _, f := range e.Faults {
		until = min(until, f.Start)
	}
	var queue []hold // who waited for this key alone, until it was granted, in order of the grants
	for _, h := range holds {
		if len(h.Keys) == 1 && !h.Verb.tries() && h.Granted < until {
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

// checkQueue allows as many overtakings as there are goroutines. All of them can be on their way to
// the queue when the waiter is, on a machine that has few processors for so many processes, and
// InnoDB's queue is not strictly in order. It is still far below what a lock without a queue shows,
// where a waiter is overtaken for as long as others come.
func (e *epoch) checkQueue(key int, holds []hold) (most int, violations []violation) {
	most, waiter, by := e.overtaken(key, holds)
	if most <= e.workers {
		return most, nil
	}
	return most, []violation{{
		ruleQueue, fmt.Sprintf("key %d: a waiter was overtaken %d times, by operations that called more than %v later",
			key, most, headStart),
		append([]*operation{waiter}, by...),
	}}
}
