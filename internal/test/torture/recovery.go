package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// damage summarises the effects of all faults of one kind.
type damage struct {
	Kind       faultKind
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

// recovery is the time until the lock works again. For a switchover, it is the time from its begin
// to the first grant by the new primary. For another fault of the server, it is the time from the
// end of the fault to the next grant of any key. For a fault of a worker or a session, it is
// the time from the fault to the next grant of each key that the fault took from the victim, or
// else that the victim waited for. It does not count the time while nobody asks for a key, or while
// a holder that the fault did not hit has it. ok is false if the fault hit nothing, or nobody asked
// in this epoch.
func (e *epoch) recovery(f fault, holds map[int][]hold) (recovery time.Duration, ok bool) {
	switch {
	case f.Kind.switches():
		next := nextOfAny(holds, f.Healed)
		return time.Duration(next - f.Start), next != never
	case f.Kind == killServer || f.Kind == pauseServer:
		next := nextOfAny(holds, f.Healed)
		return time.Duration(next - f.Healed), next != never
	}
	keys, awaited := e.hit(f)
	if len(keys) == 0 {
		keys = awaited
	}
	for key := range keys {
		if h, granted := nextGrant(holds[key], f.Start); granted {
			recovery, ok = max(recovery, time.Duration(h.Granted-max(h.Call, heldUntil(holds[key], f.Start)))), true
		}
	}
	return recovery, ok
}

// hit lists the keys that the fault took from its victim, and the keys that the victim waited for.
// The server does not say whose session was terminated: it belongs to the operation that broke
// before another fault came.
func (e *epoch) hit(f fault) (taken, awaited map[int]bool) {
	taken, awaited = map[int]bool{}, map[int]bool{}
	for _, o := range e.Operations {
		if o.Call > f.Start || o.Return != 0 && o.Return <= f.Start || f.Victim != everybody && f.Victim != o.Process {
			continue
		}
		_, latest := e.explanation(o)
		broken := (o.Outcome != done && !o.Expected || o.Lost != 0) && latest != nil && latest.Start == f.Start
		for _, key := range o.Keys {
			switch held := o.Granted != 0 && o.Granted <= f.Start; {
			case held && broken && (o.Released == 0 || o.Released > f.Start):
				taken[key] = true
			case !held && (broken || f.Victim != everybody):
				awaited[key] = true
			}
		}
	}
	return taken, awaited
}

// heldUntil is when the last unbroken hold of that time ends, or at if there is none.
func heldUntil(holds []hold, at int64) int64 {
	until := at
	for _, h := range holds {
		if !h.broken && h.Granted <= at {
			until = max(until, h.end)
		}
	}
	return until
}

// nextGrant returns the next holder of the key.
func nextGrant(holds []hold, from int64) (hold, bool) {
	for _, h := range holds {
		if h.Granted > from {
			return h, true
		}
	}
	return hold{}, false
}

// nextOfAny is when the next holder of any key got it, or never.
func nextOfAny(holds map[int][]hold, from int64) int64 {
	next := int64(never)
	for _, list := range holds {
		if h, ok := nextGrant(list, from); ok {
			next = min(next, h.Granted)
		}
	}
	return next
}

// assess adds the faults of the epoch to the damages of their kinds.
func (e *epoch) assess(damages map[faultKind]*damage, holds map[int][]hold) []violation {
	for _, f := range e.Faults {
		d := damages[f.Kind]
		if d == nil {
			d = &damage{Kind: f.Kind}
			damages[f.Kind] = d
		}
		d.Count++
		if recovery, ok := e.recovery(f, holds); ok {
			d.Recoveries = append(d.Recoveries, recovery)
		}
	}
	var violations []violation
	for key, list := range holds {
		if isSemaphore(e.keys, key) {
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
			// time learns of it when it runs again. A primary that was stopped grants locks to who
			// is not kept from it, until it has learned that another leads.
			told := f.Kind.tellsFirst() && !(e.unfenced && f.Kind == switchStopped)
			if belief > 0 && told && belief > e.excused(h.operation, other, f.Kind) {
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
