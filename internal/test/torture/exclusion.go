package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// violation is a broken promise.
type violation struct {
	Rule       string       `json:"rule"`
	Text       string       `json:"text"`
	Operations []*operation `json:"operations,omitempty"`
}

// checkTime limits the search for an order of one key's history. If the search takes longer, the
// result says so.
const checkTime = time.Minute

// never is the return time of an operation that did not return. It may take effect at any later
// time.
const never = math.MaxInt64

// addition is an operation on a counter. It adds 1 to the value that it reads. The last one only
// reads.
type addition struct {
	id   operationID
	look bool
}

// anything is the output of an addition whose value was not recorded.
const anything int64 = -1

// counterModel is a counter. Each operation adds 1 and returns the value before. Two operations
// that held the lock at once would read the same value.
func counterModel(start int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return start },
		Step: func(state, input, output any) (bool, any) {
			value, read := state.(int64), output.(int64)
			if read != anything && read != value {
				return false, state
			}
			if input.(addition).look {
				return true, value
			}
			return true, value + 1
		},
	}
}

// step is an operation on a mutex: a holder takes it or gives it back.
type step struct {
	id     operationID
	take   bool
	shares bool
}

// owners are the holders of a mutex: one writer, or any number of readers.
type owners struct {
	writer  operationID
	readers int
}

// nobody is the writer of a mutex that is free or shared.
const nobody operationID = 0

func mutexModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return owners{} },
		Step: func(state, input, _ any) (bool, any) {
			by, s := state.(owners), input.(step)
			switch {
			case s.shares && s.take:
				return by.writer == nobody, owners{readers: by.readers + 1}
			case s.shares:
				return by.readers > 0, owners{readers: by.readers - 1}
			case s.take:
				return by == owners{}, owners{writer: s.id}
			}
			return by.writer == s.id, owners{}
		},
	}
}

// checkMutex checks that no writer certainly had the lock of a key together with somebody else. A
// hold that a fault broke may have ended at any time since the fault.
//
// The server granted a hold at some time since the call, and released it at some time up to the
// return. But if there is an order for any such times, there is one in which every hold is as short
// as it can be, from when it was known to be granted to when it was given back. So these are
// searched: with the times of the calls, of which a hundred may be under way, a search has no end.
func (e *epoch) checkMutex(key int, holds []hold) []violation {
	certain := slices.DeleteFunc(slices.Clone(holds), func(h hold) bool { return h.end <= h.Granted })
	found := overlapping(certain)
	var history []porcupine.Operation
	for _, h := range holds {
		call, back := h.Granted, h.end
		if h.end <= h.Granted { // it may have been over before it was known: a moment will do
			call, back = h.Call, h.Granted
		}
		history = append(history,
			porcupine.Operation{Input: step{h.ID, true, h.Verb.shares()}, Call: call, Return: h.Granted},
			porcupine.Operation{Input: step{h.ID, false, h.Verb.shares()}, Call: h.end, Return: back})
	}
	result := porcupine.Illegal
	if found == nil { // a search would be in vain otherwise, and long
		result = porcupine.CheckOperationsTimeout(mutexModel(), history, checkTime)
		for _, h := range holds {
			found = append(found, h.operation)
		}
	}
	if result == porcupine.Ok {
		return nil
	}
	return []violation{{
		Rule: "mutual exclusion", Text: fmt.Sprintf("key %d: no order of the holds in which a writer has the lock "+
			"alone (%s)", key, result),
		Operations: found,
	}}
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

// checkCounter checks the additions to one counter and its final value. Their order follows from
// the values that they read.
func (e *epoch) checkCounter(rule string, key int, additions []porcupine.Operation, operations []*operation, start,
	end int64,
) []violation {
	additions = append(additions, porcupine.Operation{
		Input: addition{look: true}, Output: end, Call: e.End,
		Return: e.End,
	})
	result := porcupine.Illegal
	if !repeated(additions) {
		result = porcupine.CheckOperationsTimeout(counterModel(start), additions, checkTime)
	}
	if result == porcupine.Ok {
		return nil
	}
	return []violation{{
		Rule: rule, Text: fmt.Sprintf("key %d: no order of the additions explains what they read between the first "+
			"value %d and the last %d (%s)", key, start, end, result),
		Operations: suspicious(operations, key, rule == ruleFenced),
	}}
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

// repeated tells whether two additions read the same. A search for their order would be in vain,
// and long.
func repeated(additions []porcupine.Operation) bool {
	seen := map[any]bool{}
	for _, a := range additions {
		if a.Input.(addition).look || a.Output == anything {
			continue
		}
		if seen[a.Output] {
			return true
		}
		seen[a.Output] = true
	}
	return false
}

// suspicious returns the operations that read the same value as another, for the report. If there
// are none, it returns all operations.
func suspicious(operations []*operation, key int, fenced bool) []*operation {
	byValue := map[int64][]*operation{}
	for _, o := range operations {
		if value, ok := o.readOf(key, fenced); ok {
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
func (o *operation) readOf(key int, fenced bool) (int64, bool) {
	if fenced {
		return o.Fence.Read, o.Fence.Outcome == done
	}
	for i, k := range o.Keys {
		if k == key && i < len(o.Reads) {
			return o.Reads[i], true
		}
	}
	return 0, false
}
