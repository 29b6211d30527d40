package wire

import (
	"syscall"
	"time"
)

// idleLateness is how late a timer of an idle process may be: the runtime waits in whole
// milliseconds.
const idleLateness = 2 * time.Millisecond

// sleep waits for d, by the kernel's timer at the end: half a millisecond would be more than a
// whole one otherwise.
func sleep(d time.Duration) {
	end := time.Now().Add(d)
	if d > idleLateness {
		time.Sleep(d - idleLateness)
	}
	for left := time.Until(end); left > 0; left = time.Until(end) {
		rest := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&rest, nil)
	}
}
