package crew

import (
	"context"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/txlock/txlock/bench/contest"
)

// footprint has callers hold a key each, or wait for the same one, and looks at what the process
// needs meanwhile.
func (w *worker) footprint(job Footprint) (report Message, err error) {
	client, err := job.Entrant.open(context.Background())
	if err != nil {
		return report, err
	}
	defer client.Close()
	if err := rehearse(client, 1); err != nil { // what a client learns once is known then
		return report, err
	}
	if err := w.begin(); err != nil {
		return report, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	memoryBefore, began := memory(), Now()
	var callers, there sync.WaitGroup
	there.Add(job.Callers)
	failed := make([]failures, job.Callers)
	for i := range job.Callers {
		callers.Go(func() {
			here := sync.OnceFunc(there.Done)
			defer here()
			key := Key(i)
			if job.OneKey {
				key = Key(0)
				here()
			}
			err := client.Hold(ctx, []string{key}, func(held context.Context, _ contest.Tx) error {
				here()
				select {
				case <-held.Done():
					return context.Cause(held)
				case <-ctx.Done():
					return nil
				}
			})
			if err != nil && ctx.Err() == nil {
				failed[i].add(ctx, err)
			}
		})
	}
	there.Wait()
	report.Footprint = &Needs{Began: time.Duration(Now() - began)}
	Wait(ctx, Settle)
	before := processor()
	Wait(ctx, job.For)
	report.Footprint.Processor = processor() - before
	report.Footprint.Memory = memory() - memoryBefore
	cancel()
	callers.Wait()
	for _, f := range failed {
		report.note(f)
	}
	return report, w.expect(Stop)
}

// memory is what the process has of the machine's memory now, in bytes.
func memory() int64 {
	debug.FreeOSMemory()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		panic(err) // Linux has it
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// processor is the processor time that the process has used.
func processor() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		panic(err) // only a wrong argument fails
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
