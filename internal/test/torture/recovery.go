package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// damage summarises the effects of all faults of one kind.
type damage struct {
	Count      int
	Losses     int // number of broken holds
	Recoveries []time.Duration
	// Belief is the longest time for which a Lock did not know that it was lost, while another
	// already had the lock.
	Belief time.Duration
}

// quantile is the recovery time that a share q of all does not exceed, or 0 without any.
func (d *damage) quantile(q float64) time.Duration {
	if len(d.Recoveries) == 0 {
		return 0
	}
	sorted := slices.Clone(d.Recoveries)
	slices.Sort(sorted)
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// recovery is the time until locks are granted again: for a switchover from its begin to the first
// grant by the new primary, for another fault of the server from its end to the next grant. ok is
// false for a fault of a worker or a session, and if nobody asked in this epoch.
func recovery(f fault, holds map[int][]hold) (took time.Duration, ok bool) {
	from := f.Healed
	switch {
	case f.Kind.switches():
		from = f.Start
	case f.Kind != killServer && f.Kind != pauseServer:
		return 0, false
	}
	next := int64(never)
	for _, list := range holds {
		for _, h := range list {
			if h.Granted > f.Healed {
				next = min(next, h.Granted)
				break
			}
		}
	}
	return time.Duration(next - from), next != never
}

// assess adds the faults of the epoch to the damages of their kinds.
func (e *epoch) assess(damages map[faultKind]*damage, holds map[int][]hold) []violation {
	for _, f := range e.Faults {
		d := damages[f.Kind]
		if d == nil {
			d = &damage{}
			damages[f.Kind] = d
		}
		d.Count++
		if took, ok := recovery(f, holds); ok {
			d.Recoveries = append(d.Recoveries, took)
		}
	}
	var violations []violation
	for key, list := range holds {
		if isSemaphore(key) {
			continue // each permit is a key of its own
		}
		for _, h := range list {
			_, f := e.explanationUntil(h.operation, cmp.Or(h.Lost, h.Return, h.Died, e.End))
			if !h.broken || f == nil {
				continue
			}
			d := damages[f.Kind]
			if h.Keys[0] == key {
				d.Losses++
			}
			belief, other := beliefOf(h, list)
			d.Belief = max(d.Belief, belief)
			// If the server ends the session by its timer, WithLease promises that the holder
			// learns of the loss a tenth of the lease earlier. A process that did not run at that
			// time learns of it when it runs again.
			if belief > 0 && f.Kind.tellsFirst() && belief > e.excused(h.operation, other, f.Kind) {
				violations = append(violations, violation{
					ruleBelief, fmt.Sprintf("key %d: the lock was given to another %v before the holder was told "+
						"that it is lost", key, belief),
					[]*operation{h.operation, other},
				})
			}
		}
	}
	return violations
}

// excused is how long a former holder may have continued while other had the lock, because its
// process did not run. It should have learned of the loss a tenth of the lease earlier, so only a
// stall beyond that tenth made it late. The clock misses short pauses: just before a stall, when
// the notice was due, and just after it, when the holder was about to see the notice.
func (e *epoch) excused(o, other *operation, kind faultKind) time.Duration {
	margin := int64(e.lease / 10)
	if kind.switches() {
		margin = 0 // nothing but that all sessions end before another server takes writes
	}
	stalled := e.stalled(o.Process, other.Granted-margin, cmp.Or(o.Lost, o.Released))
	return time.Duration(stalled-margin) + 2*shortestStall
}

// beliefOf is how long a former holder continued while another had the lock.
func beliefOf(h hold, list []hold) (time.Duration, *operation) {
	told := h.Lost
	if told == 0 {
		told = h.Released
	}
	if !h.Verb.holds() || told == 0 {
		return 0, nil
	}
	for _, other := range list {
		if other.operation != h.operation && other.Granted > h.Granted && other.Granted < told &&
			!(h.Verb.shares() && other.Verb.shares()) {
			return time.Duration(told - other.Granted), other.operation
		}
	}
	return 0, nil
}
