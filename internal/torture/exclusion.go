package main

import (
	"fmt"
	"math"
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

// step is an operation on a mutex: its holder takes it or gives it back.
type step struct {
	id   operationID
	take bool
}

// nobody is the holder of a free mutex.
const nobody operationID = 0

func mutexModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return nobody },
		Step: func(state, input, _ any) (bool, any) {
			holder, s := state.(operationID), input.(step)
			if s.take {
				return holder == nobody, s.id
			}
			return holder == s.id, nobody
		},
	}
}

// checkMutex checks that no two operations certainly had the lock of a key at once. A hold that a
// fault broke may have ended at any time since the fault.
func (e *epoch) checkMutex(key int, holds []hold) []violation {
	var history []porcupine.Operation
	for _, h := range holds {
		back := h.Return
		if h.broken || back == 0 {
			back = never
		}
		history = append(history,
			porcupine.Operation{Input: step{h.ID, true}, Call: h.Call, Return: h.Granted},
			porcupine.Operation{Input: step{h.ID, false}, Call: h.end, Return: max(back, h.end)})
	}
	result := porcupine.CheckOperationsTimeout(mutexModel(), history, checkTime)
	if result == porcupine.Ok {
		return nil
	}
	return []violation{{
		Rule: "mutual exclusion", Text: fmt.Sprintf("key %d: no order of the holds in which one has the lock at a "+
			"time (%s)", key, result),
		Operations: overlapping(holds),
	}}
}

// overlapping returns the holds that overlap another, for the report.
func overlapping(holds []hold) []*operation {
	var found []*operation
	last := -1 // the hold with the latest end so far
	for i, h := range holds {
		if last >= 0 && h.Granted < holds[last].end {
			found = append(found, holds[last].operation, h.operation)
		}
		if last < 0 || h.end > holds[last].end {
			last = i
		}
	}
	if found == nil { // only porcupine has found it
		for _, h := range holds {
			found = append(found, h.operation)
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
	result := porcupine.CheckOperationsTimeout(counterModel(start), additions, checkTime)
	if result == porcupine.Ok {
		return nil
	}
	return []violation{{
		Rule: rule, Text: fmt.Sprintf("key %d: no order of the additions explains what they read between the first "+
			"value %d and the last %d (%s)", key, start, end, result),
		Operations: suspicious(operations, key, rule == ruleFenced),
	}}
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
