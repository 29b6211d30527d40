package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// violation is a broken promise.
type violation struct {
	Rule       string
	Text       string
	Operations []*operation
}

// never is the return time of an operation that did not return. It may take effect at any later
// time.
const never = math.MaxInt64

// checkMutex checks that no writer certainly had the lock of a key together with somebody else. A
// hold that a fault broke may have ended at any time since the fault.
//
// The server granted a hold at some time since the call, and released it at some time up to the
// return. But if there is an order for any such times, there is one in which every hold is as short
// as it can be: from when it was known to be granted to when it was given back.
func (e *epoch) checkMutex(key int, holds []hold) []violation {
	certain := slices.DeleteFunc(slices.Clone(holds), func(h hold) bool { return h.end <= h.Granted })
	found := overlapping(certain)
	for _, h := range holds {
		if h.end <= h.Granted {
			found = append(found, h.without(certain)...)
		}
	}
	if found == nil {
		return nil
	}
	return []violation{{
		ruleExclusion, fmt.Sprintf("key %d: a writer had the lock together with somebody else", key), found,
	}}
}

// without looks for a moment for a hold that may have been over before it was known. The moment is
// one at which nobody held the lock whom it excludes, from when the hold may have ended to when it
// was known. If there is none, without returns the hold and the last in its way. Certain are in the
// order of their grants.
func (h hold) without(certain []hold) (found []*operation) {
	free := max(h.end, h.Call)
	var last *operation
	for _, c := range certain {
		if c.Granted < free && free < c.end && !(c.Verb.shares() && h.Verb.shares()) {
			free, last = c.end, c.operation
		}
	}
	if free <= h.Granted {
		return nil
	}
	return []*operation{h.operation, last}
}

// overlapping returns the holds that overlap another, unless both share.
func overlapping(holds []hold) []*operation {
	var found []*operation
	var writer, reader *hold // those with the latest end so far
	for i, h := range holds {
		if writer != nil && h.Granted < writer.end {
			found = append(found, writer.operation, h.operation)
		}
		latest := &reader
		if !h.Verb.shares() {
			latest = &writer
			if reader != nil && h.Granted < reader.end {
				found = append(found, reader.operation, h.operation)
			}
		}
		if *latest == nil || h.end > (*latest).end {
			*latest = &holds[i]
		}
	}
	return found
}

// addition adds 1 to the value of a counter that it read, or, if it looks, only reads. It took
// effect at a moment between its call and its end.
type addition struct {
	read      int64
	look      bool
	call, end int64
}

// explained tells whether additions can have taken effect one after the other. What each read gives
// their order. So each is given the earliest moment that those before it leave.
func explained(additions []addition, from, to int64) bool {
	adds, looks := map[int64]addition{}, map[int64][]addition{}
	slices.SortFunc(additions, func(a, b addition) int { return cmp.Compare(a.call, b.call) })
	for _, a := range additions {
		_, twice := adds[a.read]
		switch {
		case a.read < from || a.read > to || !a.look && (twice || a.read == to):
			return false
		case a.look:
			looks[a.read] = append(looks[a.read], a)
		default:
			adds[a.read] = a
		}
	}
	at := int64(0)
	takes := func(a addition) bool {
		at = max(at, a.call)
		return at <= a.end
	}
	for value := from; value < to; value++ {
		add, known := adds[value]
		if !known || slices.ContainsFunc(looks[value], func(a addition) bool { return !takes(a) }) || !takes(add) {
			return false
		}
	}
	return from <= to && !slices.ContainsFunc(looks[to], func(a addition) bool { return !takes(a) })
}

// checkReaders checks that readers found the same when they had come and before they went.
func (e *epoch) checkReaders() []violation {
	var violations []violation
	for _, o := range e.Operations {
		if o.Verb == verbRead && o.Outcome == done && !slices.Equal(o.Reads, o.Again) {
			violations = append(violations, violation{
				ruleReaders, "somebody wrote while the lock was shared", []*operation{o},
			})
		}
	}
	return violations
}

// suspicious returns the operations that read the same value as another, for the report. If there
// are none, it returns all operations.
func suspicious(operations []*operation, key int) []*operation {
	byValue := map[int64][]*operation{}
	for _, o := range operations {
		if value, ok := o.readOf(key); ok {
			byValue[value] = append(byValue[value], o)
		}
	}
	var found []*operation
	for _, same := range byValue {
		if len(same) > 1 {
			found = append(found, same...)
		}
	}
	if found == nil {
		return operations
	}
	return found
}

// readOf returns the value that an operation read for a key.
func (o *operation) readOf(key int) (int64, bool) {
	for i, k := range o.Keys {
		if k == key && i < len(o.Reads) {
			return o.Reads[i], true
		}
	}
	return 0, false
}
