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

// Run deletes batch after batch, until one is not full. Each begins where the last one ended: the
// server need not look again at what was deleted before. It returns how many rows are deleted, also
// after an error.
func Run(from string, batch func(from string, size int) (last string, n int, err error)) (deleted int64, err error) {
	for size := first; ; {
		begun := time.Now()
		last, n, err := batch(from, size)
		deleted += int64(n)
		if err != nil || n < size {
			return deleted, err
		}
		from, size = last, after(size, time.Since(begun))
	}
}

// after is the size of the batch behind one that has taken so long.
func after(size int, took time.Duration) int {
	fitting := time.Duration(size) * target / max(took, time.Microsecond)
	return min(max(int(min(fitting, most)), least), size*2)
}
