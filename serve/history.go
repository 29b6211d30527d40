package serve

import (
	"time"

	"github.com/txlock/txlock"
)

// The plots show the last quarter of an hour in steps.
const (
	step     = 10 * time.Second
	steps    = 90
	mostKept = 4096 // locks with a series of their own, of some 2 kB each
)

// lockID is what identifies a row: see [txlock.Holding].
type lockID struct{ table, column, row string }

func idOf(h txlock.Holding) lockID { return lockID{h.Table, h.Column, h.Row} }

// point is the worst that was seen within a step.
type point struct {
	seen    bool // somebody looked
	held    int32
	waiting int32
	hold    float32 // seconds, of who has held for longest
	wait    float32 // seconds, of who has waited for longest
}

// series is a ring of points.
type series struct {
	ring [steps]point
	last int64 // the newest step that is in the ring
	busy int64 // the last step with anything but zeros
}

func (s *series) note(at int64, p point) {
	if at-s.last >= steps {
		s.ring, s.last = [steps]point{}, at
	}
	for s.last < at {
		s.last++
		s.ring[s.last%steps] = point{}
	}
	old := &s.ring[at%steps]
	*old = point{
		true, max(old.held, p.held), max(old.waiting, p.waiting), max(old.hold, p.hold), max(old.wait, p.wait),
	}
	if p.held > 0 || p.waiting > 0 {
		s.busy = at
	}
}

// history is of what was seen. While nobody looks nothing is.
type history struct {
	all   series
	locks map[lockID]*series
}

func newHistory() history { return history{locks: map[lockID]*series{}} }

func stepOf(at time.Time) int64 { return at.UnixNano() / int64(step) }

func (h *history) note(now time.Time, holdings []txlock.Holding) {
	at := stepOf(now)
	total, present := point{}, make(map[lockID]point, len(holdings))
	for _, holding := range holdings {
		p := pointOf(holding)
		present[idOf(holding)] = p
		total.held += p.held
		total.waiting += p.waiting
		total.hold, total.wait = max(total.hold, p.hold), max(total.wait, p.wait)
	}
	h.all.note(at, total)
	for id := range present {
		if h.locks[id] == nil && len(h.locks) < mostKept {
			h.locks[id] = new(series)
		}
	}
	for id, s := range h.locks {
		if s.note(at, present[id]); at-s.busy >= steps {
			delete(h.locks, id)
		}
	}
}

func pointOf(h txlock.Holding) point {
	p := point{waiting: int32(len(h.Waiters))}
	for _, holder := range holdersOf(h) {
		p.held = 1
		p.hold = max(p.hold, float32(holder.For.Seconds()))
	}
	for _, waiter := range h.Waiters {
		p.wait = max(p.wait, float32(waiter.For.Seconds()))
	}
	return p
}

// points returns the points up to now, the oldest first, of all locks together or of one.
func (h *history) points(of *lockID, now time.Time) []point {
	s := &h.all
	if of != nil {
		if s = h.locks[*of]; s == nil {
			s = new(series)
		}
	}
	points, last := make([]point, steps), stepOf(now)
	for i := range points {
		if at := last - steps + 1 + int64(i); at <= s.last && at > s.last-steps {
			points[i] = s.ring[at%steps]
		}
	}
	return points
}
