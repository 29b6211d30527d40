package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// doneSQL notes that the operation has done its work.
func doneSQL(o *operation) string {
	return fmt.Sprintf("INSERT INTO %s (work, operation) VALUES (%d, %d)", works, o.Work, int64(o.ID))
}

// workOf chooses what is to be done once. There are a few works at a time, for all processes.
func workOf(random *rand.Rand) int64 {
	const few, period = 8, 200 * time.Millisecond
	return now()/int64(period)*few + random.Int64N(few)
}

// checkOnce compares what calls of Once were told with the works and the markers that are there at
// the end.
func (e *epoch) checkOnce() []violation {
	var violations []violation
	report := func(operations []*operation, format string, args ...any) {
		violations = append(violations, violation{ruleOnce, fmt.Sprintf(format, args...), operations})
	}
	byID, byWork := map[operationID]*operation{}, map[int64][]*operation{}
	for _, o := range e.Operations {
		if o.Verb.once() || o.Verb == verbJob && o.Work > 0 {
			byID[o.ID], byWork[o.Work] = o, append(byWork[o.Work], o)
		}
	}
	for work, by := range e.after.works {
		if len(by) > 1 {
			report(byWork[work], "work %d was done %d times", work, len(by))
		}
		for _, id := range by {
			if o := byID[id]; o == nil || o.Work != work {
				report(nil, "work %d was done by %v, which nobody called", work, id)
			}
		}
	}
	for work, operations := range byWork {
		by := e.after.works[work]
		if marked, known := e.after.marked[work]; known && marked != (len(by) > 0) {
			report(operations, "work %d was done %d times, and that there is a marker is %t", work, len(by), marked)
		}
		for _, o := range operations {
			if e.takenBack(o, operations) {
				continue
			}
			o.checkOnce(by, byID, report)
		}
	}
	return violations
}

// takenBack tells whether a call found a marker that a kill of the server took back before its
// COMMIT was answered. InnoDB shows what is committed before its log is on the disk: see
// docs/guarantees.md. PostgreSQL does not.
func (e *epoch) takenBack(o *operation, sameWork []*operation) bool {
	if !e.seenEarly || o.Outcome != done || o.Ran {
		return false
	}
	for _, other := range sameWork {
		for _, f := range e.Faults {
			if (f.Kind == killServer || f.Kind == switchKilled) && other.Outcome == unknown &&
				other.Granted != 0 && other.Granted < o.Return && o.Return <= f.Start && f.Start <= other.Return {
				return true
			}
		}
	}
	return false
}

// checkOnce checks what one call was told.
func (o *operation) checkOnce(by []operationID, byID map[operationID]*operation,
	report func(operations []*operation, format string, args ...any),
) {
	did := slices.Contains(by, o.ID)
	switch {
	case o.Outcome == done && o.Ran && !did:
		report([]*operation{o}, "work %d: the call was told that it ran, and that is not there", o.Work)
	case o.Outcome == done && !o.Ran && did:
		report([]*operation{o}, "work %d: the call was told that it did not run, and it did", o.Work)
	case o.Outcome == done && !o.Ran && len(by) == 0:
		report([]*operation{o}, "work %d: the call was told that it was done, and it is not there", o.Work)
	case o.Outcome == done && !o.Ran:
		// It commits only after it ends, so nobody may be told before.
		if first := byID[by[0]]; first != nil && o.Return < max(first.Granted, first.Released) {
			report([]*operation{o, first}, "work %d: the call was told that it was done, when it was not yet", o.Work)
		}
	case (o.Outcome == failed || o.Outcome == missed) && did:
		report([]*operation{o}, "work %d: the call failed, and its work is there", o.Work)
	}
}
