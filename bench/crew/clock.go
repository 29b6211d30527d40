package crew

import "golang.org/x/sys/unix"

// Now is the machine's monotonic clock in nanoseconds. It is the same in all processes, and nobody
// can set it.
func Now() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // the clock always exists
	}
	return now.Nano()
}
