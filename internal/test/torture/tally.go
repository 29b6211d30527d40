package main

import "fmt"

const (
	ruleExclusion = "mutual exclusion"
	ruleSet       = "set kept through Do"
	ruleCounter   = "counter kept through Do"
	ruleTokens    = "order of tokens"
	ruleErrors    = "no error without a fault"
	ruleQueue     = "order of waiters"
	ruleRest      = "nothing left behind"
	ruleBelief    = "told before another has the lock"
	ruleReaders   = "nothing changes under readers"
	rulePermits   = "bound of a semaphore"
	ruleOnce      = "work done once"
	ruleClaims    = "nothing committed under an ended claim"
)

// checkSet compares acknowledgements with effects. An acknowledged Do must have taken effect once
// on each of its keys, a failed Do on none, and a Do with unknown outcome on all or none.
func (e *epoch) checkSet() []violation {
	var violations []violation
	report := func(o *operation, text string) {
		violations = append(violations, violation{ruleSet, text, []*operation{o}})
	}
	known := map[operationID]bool{}
	for _, o := range e.Operations {
		if !o.Verb.updates() {
			continue
		}
		known[o.ID] = true
		for _, key := range o.Keys {
			n, first := e.after.applied[application{o.ID, key}], e.after.applied[application{o.ID, o.Keys[0]}]
			switch {
			case o.Outcome == done && n == 0:
				report(o, fmt.Sprintf("key %d: an acknowledged update is lost", key))
			case n > 1:
				report(o, fmt.Sprintf("key %d: an update took effect %d times", key, n))
			case (o.Outcome == failed || o.Outcome == missed) && n > 0:
				report(o, fmt.Sprintf("key %d: an update took effect whose error says that it did not", key))
			case n != first:
				report(o, fmt.Sprintf("an update took effect on key %d and not on both", o.Keys[0]))
			}
		}
	}
	for a := range e.after.applied {
		if !known[a.operation] {
			violations = append(violations, violation{
				Rule: ruleSet,
				Text: fmt.Sprintf("key %d: an update of %v, which nobody called", a.key, a.operation),
			})
		}
	}
	return violations
}

// checkSums compares each counter with the number of rows in its set.
func (e *epoch) checkSums() []violation {
	var violations []violation
	members := map[int]int64{}
	for a, n := range e.after.applied {
		members[a.key] += int64(n)
	}
	for key, value := range e.after.counters {
		if grown := value - e.before.counters[key]; grown != members[key] {
			violations = append(violations, violation{
				Rule: ruleCounter, Text: fmt.Sprintf("key %d: the counter has grown by %d and its set by %d", key,
					grown, members[key]),
			})
		}
	}
	return violations
}

// checkDo checks the counters that Dos change. The set shows which Dos took effect where no worker
// reported it.
func (e *epoch) checkDo(key int) []violation {
	var history []addition
	var operations []*operation
	for _, o := range e.Operations {
		a := application{o.ID, key}
		read, ok := o.readOf(key)
		took := addition{read, o.Verb == verbRead, o.Call, o.Return}
		switch {
		case o.Verb == verbRead:
			if o.Outcome != done || !ok {
				continue
			}
		case !o.Verb.updates():
			continue
		case o.Outcome == done && ok:
		case e.after.applied[a] > 0:
			took.read, took.end = e.after.seen[a], e.End
		default:
			continue
		}
		history, operations = append(history, took), append(operations, o)
	}
	from, to := e.before.counters[key], e.after.counters[key]
	if explained(append(history, addition{to, true, e.End, e.End}), from, to) {
		return nil
	}
	return []violation{{
		ruleCounter, fmt.Sprintf("key %d: no order of the additions explains what they read between the first "+
			"value %d and the last %d", key, from, to),
		suspicious(operations, key),
	}}
}

// checkErrors looks for errors that no fault explains, and for contradictory answers.
func (e *epoch) checkErrors() []violation {
	var violations []violation
	report := func(o *operation, text string) {
		violations = append(violations, violation{ruleErrors, text, []*operation{o}})
	}
	for _, o := range e.Operations {
		fault, _ := e.explanation(o)
		switch {
		case o.Return == 0 && o.Died == 0:
			report(o, "it never returned")
		case o.Lost != 0 && o.Outcome == done:
			report(o, "its context ended with ErrLost, and Unlock says that all was well")
		case fault != nil || o.Died != 0:
		case o.Lost != 0:
			report(o, "the lock was lost without a fault")
		case o.Outcome != done && !o.Expected:
			report(o, "an error without a fault")
		}
	}
	return violations
}
