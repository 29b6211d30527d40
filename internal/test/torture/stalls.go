package main

import (
	"cmp"
	"database/sql"
	"slices"
	"sync"
	"time"
)

// processStalled is not caused on purpose: a busy machine did not run the process for a while. A
// lock cannot prevent the consequences, and no fixed tolerance fits every machine. So every process
// measures its stalls.
const processStalled faultKind = "process not run by the machine"

// serverStalled is not caused on purpose either: the machine, or its disk, did not run the server.
// It explains the end of a session, as a fault does, and nothing else.
const serverStalled faultKind = "server not run by the machine"

// watchServer asks the server again and again until stop is closed, past all proxies, and reports
// answers that came late. An error is none: somebody has ended the server.
func watchServer(db *sql.DB, report func(from, to int64), stop <-chan struct{}) {
	ticker := time.NewTicker(5 * tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			from := now()
			if _, err := db.Exec("SELECT 1"); err == nil && now()-from > int64(shortestStall) {
				report(from, now())
			}
		case <-stop:
			_ = db.Close()
			return
		}
	}
}

const (
	tick = 10 * time.Millisecond
	// shortestStall is the shortest stall that is reported. A few shorter ones do not add up to a
	// tenth of a lease, which is 100 ms at least.
	shortestStall = 25 * time.Millisecond
)

// clock notices when its process did not run. It reads the time so often that it sees the gap.
type clock struct {
	mu     sync.Mutex
	last   int64
	report func(from, to int64)
}

func newClock(report func(from, to int64)) *clock { return &clock{last: now(), report: report} }

// run looks repeatedly until stop is closed.
func (c *clock) run(stop <-chan struct{}) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.look()
		case <-stop:
			return
		}
	}
}

// look reports the gap since the last look if it is a stall. It is also called at the end of an
// epoch, so that every stall is known before the epoch is judged.
func (c *clock) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := now()
	if at-c.last > int64(shortestStall) {
		c.report(c.last, at)
	}
	c.last = at
}

// inOrder sorts stalls by their start.
func inOrder(stalls []fault) []fault {
	slices.SortFunc(stalls, func(a, b fault) int { return cmp.Compare(a.Start, b.Start) })
	return stalls
}

// stalled is how long a process or the parent did not run between two moments. The parent counts
// because its proxies carry all traffic.
func (e *epoch) stalled(process int, from, to int64) (total int64) {
	for _, s := range e.Stalls {
		if s.Kind != processStalled || s.Victim != process && s.Victim != everybody {
			continue
		}
		if begin, end := max(s.Start, from), min(s.Healed, to); end > begin {
			total += end - begin
			from = end // time in which both were stalled counts once
		}
	}
	return total
}

// unprovoked is how long all processes together did not run, without the time for which they were
// stopped on purpose.
func (e *epoch) unprovoked() (total time.Duration) {
	for _, s := range e.Stalls {
		if s.Kind == processStalled && !slices.ContainsFunc(e.Faults, func(f fault) bool {
			return f.Kind == stopWorker && f.Victim == s.Victim && f.Start < s.Healed && s.Start < f.Healed
		}) {
			total += time.Duration(s.Healed - s.Start)
		}
	}
	return total
}

// breaks reports whether a stall can have ended a session. That takes nearly a lease, but a few
// stalls may add up to it.
func (e *epoch) breaks(stall *fault) bool { return stall.Healed-stall.Start >= int64(e.lease/4) }
