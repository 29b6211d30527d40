package main

import (
	"cmp"
	"fmt"
	"slices"
)

// There are a few semaphores of so many permits. Their keys come behind those of the elections, and
// then a key for each permit: an operation that waits has the semaphore's, and one that holds has
// the permit's and the semaphore's. So what is claimed of locks is claimed of permits.
const (
	semaphores = 2
	permits    = 3
)

func semaphoreKey(semaphore int) int { return mutexes + elections + semaphore }

func permitKey(semaphore, permit int) int {
	return semaphoreKey(semaphores) + semaphore*permits + permit
}

func isSemaphore(key int) bool { return key >= semaphoreKey(0) && key < semaphoreKey(semaphores) }

// checkPermits checks that no more operations certainly held a semaphore at once than it has
// permits, and that each had one of its permits.
func (e *epoch) checkPermits(key int, holds []hold) (violations []violation) {
	semaphore := key - semaphoreKey(0)
	report := func(operations []*operation, format string, args ...any) {
		violations = append(violations, violation{
			rulePermits, fmt.Sprintf("semaphore %d: ", semaphore) + fmt.Sprintf(format, args...),
			operations,
		})
	}
	var inside []hold // by their ends
	for _, h := range holds {
		if h.Permit < 0 || h.Permit >= permits || h.Keys[0] != permitKey(semaphore, h.Permit) {
			report([]*operation{h.operation}, "%d is no permit of it", h.Permit)
		}
		gone := 0
		for gone < len(inside) && inside[gone].end <= h.Granted {
			gone++
		}
		inside = inside[gone:]
		if h.end <= h.Granted {
			continue
		}
		at, _ := slices.BinarySearchFunc(inside, h, func(a, b hold) int { return cmp.Compare(a.end, b.end) })
		inside = slices.Insert(slices.Clone(inside), at, h)
		if len(inside) > permits {
			var operations []*operation
			for _, h := range inside {
				operations = append(operations, h.operation)
			}
			report(operations, "%d held it at once", len(inside))
		}
	}
	return violations
}
