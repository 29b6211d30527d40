// Package batch sizes the batches of a long deletion by the time that they take, because others may
// wait for what a batch has locked.
package batch

import "time"

const (
	first, least, most = 100, 20, 1000

	// target is how long a batch is to take. A batch that takes longer than its forerunner by a
	// factor of 3 is still shorter than what a waiter may be asked for, 50 ms.
	target = 15 * time.Millisecond
)

// Size is the size of the next batch. The zero value is ready.
type Size struct{ n int }

// Next returns the size of the next batch.
func (s *Size) Next() int {
	if s.n == 0 {
		s.n = first
	}
	return s.n
}

// Took says how long a batch of that size has taken.
func (s *Size) Took(d time.Duration) {
	fitting := time.Duration(s.Next()) * target / max(d, time.Microsecond)
	s.n = min(max(int(min(fitting, most)), least), s.n*2)
}
