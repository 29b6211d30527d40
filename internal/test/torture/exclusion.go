package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
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

// latest is the highest token of a key so far, with its holder.
type latest struct {
	token  int64
	holder *operation
}

// tokens checks the fencing tokens of the whole run.
type tokens struct {
	byKey   map[int]latest
	writers map[int]latest // the same, of those that did not share
}

func newTokens() tokens { return tokens{map[int]latest{}, map[int]latest{}} }

// check checks that tokens rise in the order of the grants, but for those of readers among
// themselves. Suppose that g learned of its grant before h did. If h kept the lock until it gave it
// back, g was granted first: otherwise both would have had the lock. If h may have lost the lock,
// that does not follow, and g counts only if it was granted before h called.
func (t *tokens) check(key int, holds []hold) []violation {
	var violations []violation
	report := func(text string, operations ...*operation) {
		violations = append(violations, violation{ruleTokens, fmt.Sprintf("key %d: %s", key, text), operations})
	}
	var granted []hold // in this epoch, in order
	for _, h := range holds {
		if !h.Verb.holds() {
			continue
		}
		if h.Token <= 0 {
			report(fmt.Sprintf("%d is no token", h.Token), h.operation)
			continue
		}
		limit := t.byKey[key]
		if h.Verb.shares() {
			limit = t.writers[key]
		}
		for _, g := range granted {
			if (!h.broken || g.Granted < h.Call) && g.Token > limit.token && !(g.Verb.shares() && h.Verb.shares()) {
				limit = latest{g.Token, g.operation}
			}
			if g.Token == h.Token {
				report("two holders have the same token", g.operation, h.operation)
			}
		}
		if h.Token < limit.token {
			report("a token is lower than that of an earlier holder", limit.holder, h.operation)
		}
		granted = append(granted, h)
	}
	for _, g := range granted {
		if g.Token > t.byKey[key].token {
			t.byKey[key] = latest{g.Token, g.operation}
		}
		if !g.Verb.shares() && g.Token > t.writers[key].token {
			t.writers[key] = latest{g.Token, g.operation}
		}
	}
	return violations
}

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
