package main

import (
	"fmt"
	"slices"
	"time"
)

// damage is what the faults of one kind have done.
type damage struct {
	Kind       faultKind       `json:"kind"`
	Count      int             `json:"count"`
	Losses     int             `json:"losses"` // holds that it broke
	Recoveries []time.Duration `json:"recoveries"`
	// Belief is the longest time for which a Lock went on, not told of its loss, while another had the lock already.
	Belief time.Duration `json:"belief"`
}

// quantile is the recovery that the share q of all does not exceed; 0 without any.
func (d *damage) quantile(q float64) time.Duration {
	if len(d.Recoveries) == 0 {
		return 0
	}
	sorted := slices.Clone(d.Recoveries)
	slices.Sort(sorted)
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// recovery is the time until the lock goes on: for a fault that hits all, from when it is healed to the next grant of any key.
// For one that hits a worker, or one session, from the fault to the next grant of each key that the victim held then, or, if
// it held none, waited for. It is false when nothing was hit, or nobody asked for those keys any more.
func (e *epoch) recovery(f fault, holds map[int][]hold) (time.Duration, bool) {
	if f.Kind == killServer || f.Kind == pauseServer {
		next := int64(never)
		for key := range holds {
			if at, ok := nextGrant(holds[key], f.Healed); ok {
				next = min(next, at)
			}
		}
		return time.Duration(next - f.Healed), next != never
	}
	held, awaited := e.hit(f)
	if len(held) == 0 {
		held = awaited
	}
	recovered := int64(0)
	for key := range held {
		if at, ok := nextGrant(holds[key], f.Start); ok {
			recovered = max(recovered, at-f.Start)
		}
	}
	return time.Duration(recovered), recovered > 0
}

// hit lists the keys that the fault's victim held and waited for. Of a terminated session the server does not say whose it
// was: it is the one whose operation broke.
func (e *epoch) hit(f fault) (held, awaited map[int]bool) {
	held, awaited = map[int]bool{}, map[int]bool{}
	for _, o := range e.Operations {
		if o.Call > f.Start || o.Return != 0 && o.Return <= f.Start || f.Victim != everybody && f.Victim != o.Process {
			continue
		}
		if f.Victim == everybody && (o.Outcome == done || o.Expected) {
			continue
		}
		for _, key := range o.Keys {
			if o.Granted != 0 && o.Granted <= f.Start {
				held[key] = o.Released == 0 || o.Released > f.Start
			} else {
				awaited[key] = true
			}
		}
	}
	for key, is := range held {
		if !is {
			delete(held, key)
		}
	}
	return held, awaited
}

// nextGrant is when somebody had the key next.
func nextGrant(holds []hold, from int64) (at int64, ok bool) {
	for _, h := range holds {
		if h.Granted > from {
			return h.Granted, true
		}
	}
	return 0, false
}

// assess adds the faults of the epoch to what is known of their kinds.
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
		for _, h := range list {
			f := e.explanation(h.operation)
			if !h.broken || f == nil {
				continue
			}
			d := damages[f.Kind]
			if h.Keys[0] == key {
				d.Losses++
			}
			belief, other := beliefOf(h, list)
			d.Belief = max(d.Belief, belief)
			// Where the server ends the session by its timer, WithLease promises that the holder knows before.
			if belief > 0 && f.Kind == networkDrop {
				violations = append(violations, violation{
					ruleBelief, fmt.Sprintf("key %d: the lock was given to another %v before the holder was told that it is lost", key, belief),
					[]*operation{h.operation, other},
				})
			}
		}
	}
	return violations
}

// beliefOf is how long one that lost the lock went on while another had it.
func beliefOf(h hold, list []hold) (time.Duration, *operation) {
	told := h.Lost
	if told == 0 {
		told = h.Released
	}
	if !h.Verb.holds() || told == 0 {
		return 0, nil
	}
	for _, other := range list {
		if other.operation != h.operation && other.Granted > h.Granted && other.Granted < told {
			return time.Duration(told - other.Granted), other.operation
		}
	}
	return 0, nil
}
