package inspection

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// row is what is held, as its user spells it. Column is empty for a slot; a semaphore has no value
// either.
type row struct {
	table, column, value string
	hash                 string // of a semaphore, or of an election
}

// queue is what a picture shows of a row.
type queue struct {
	name      string // of a semaphore, or of an election
	holder    int    // by xmax; 0: not known
	passed    int    // has the turnstile: it has the row, or is the first to wait for it; 0: not known
	turnstile string
	readers   []int // have passed the turnstile in shared form, or lock the row without it
	permits   []lock
	onSlot    []int  // wait for the slot itself
	first     []lock // wait in front of those for the turnstile
	blockers  []int  // of the first
	waiting   []lock // for the turnstile
}

type queues map[row]*queue

func (qs queues) at(r row) *queue {
	if qs[r] == nil {
		qs[r] = &queue{}
	}
	return qs[r]
}

// states puts the picture together, row by row.
func (p *picture) states(of dialects.Inspection, table string) (states []dialects.RowState) {
	var qs queues
	if of.Kind == dialects.KindRow {
		qs = p.rows(table)
	} else {
		qs = p.beside(of, table)
	}
	for r, q := range qs {
		state := p.state(r, q)
		state.Named.Kind = of.Kind
		if state.Holder != nil || len(state.Readers)+len(state.Permits)+len(state.Waiters) > 0 {
			states = append(states, state)
		}
	}
	return states
}

// rows are the queues of slots, and of rows of callers' tables.
func (p *picture) rows(table string) queues {
	qs := queues{}
	slot := func(number int) row { return row{table: table, value: strconv.Itoa(number)} }
	for _, l := range p.held {
		if l.Certain || p.owns(l) {
			qs.at(slot(l.Slot)).holder = l.PID
		}
	}
	for _, l := range p.awaited {
		q := qs.at(slot(l.Slot))
		q.onSlot = append(q.onSlot, l.PID)
	}
	shown := p.shownRows()
	for _, l := range p.turnstiles {
		r, known := shown[l.hash()]
		if l.ofTable() {
			r, known = slot(l.row()), l.row() >= 0
		}
		if known {
			qs.at(r).turn(l)
		}
	}
	for r, q := range qs {
		p.findFirst(r, q)
	}
	return qs
}

// beside are the queues of semaphores, or of elections.
func (p *picture) beside(of dialects.Inspection, table string) queues {
	slices.SortFunc(p.turnstiles, func(a, b lock) int { return cmp.Compare(a.Permit, b.Permit) })
	qs := queues{}
	for _, l := range p.turnstiles {
		r := row{table: table, column: "id", value: l.Seat, hash: l.Hash}
		if of.Kind == dialects.KindSemaphore {
			r = row{table: of.Table.Name, hash: l.Hash}
		}
		q := qs.at(r)
		q.name = cmp.Or(q.name, l.Name)
		switch {
		case of.Kind == dialects.KindElection || l.Queue && !l.Granted:
			q.turn(l)
		case l.Granted && !l.Queue:
			q.permits = append(q.permits, l)
		default: // the head: it has the lock of the queue, or waits for a permit
			l.Since = p.sessions[l.PID].Begun
			q.first = append(q.first, l)
		}
	}
	return qs
}

// turn notes who has the turnstile, or waits for it.
func (q *queue) turn(l lock) {
	switch {
	case !l.Granted:
		q.waiting = append(q.waiting, l)
		return
	case l.Shared:
		q.readers = append(q.readers, l.PID)
	default:
		q.passed = l.PID
	}
	q.turnstile = l.id()
}

// shownRows are the rows of callers' tables that sessions show, by the numbers of their
// turnstiles.
func (p *picture) shownRows() map[int64]row {
	rows := map[int64]row{}
	for _, s := range p.sessions {
		for _, one := range s.shown {
			for _, value := range one.Items {
				if one.Table != "" {
					rows[sqltext.Turnstile(one.Table, one.Column, value)] = row{
						table: one.Table, column: one.Column, value: value,
					}
				}
			}
		}
	}
	return rows
}

// findFirst finds the sessions that wait for the row itself, and those that block them.
func (p *picture) findFirst(r row, q *queue) {
	for _, w := range p.rowWaits {
		locking, alone := slices.Contains(q.onSlot, w.PID), true
		if r.column != "" && (w.PID == q.passed || slices.Contains(q.readers, w.PID)) {
			locking, alone = p.sessions[w.PID].locks(r) // else its work waits for another row
		}
		if locking {
			q.first = append(q.first, w)
		}
		if locking && alone { // of several rows, which one it waits for is not known
			q.blockers = append(q.blockers, w.Blockers...)
		}
	}
}

// owns tells whether a session that xmax names has the turnstile of the slot in exclusive form.
func (p *picture) owns(held lock) bool {
	return slices.ContainsFunc(p.turnstiles, func(l lock) bool {
		return l.PID == held.PID && l.ofTable() && l.Granted && !l.Shared && l.row() == held.Slot
	})
}

func (p *picture) state(r row, q *queue) dialects.RowState {
	waits := append(inOrder(q.first), inOrder(q.waiting)...)
	waits = slices.CompactFunc(waits, func(a, b lock) bool { return a.PID == b.PID })
	waiting := func(pid int) bool { return slices.ContainsFunc(waits, func(w lock) bool { return w.PID == pid }) }

	holder := q.holder
	readers := slices.DeleteFunc(slices.Sorted(slices.Values(q.readers)), func(pid int) bool {
		return pid == holder || pid == q.passed || waiting(pid)
	})
	readers = slices.Compact(readers)
	for _, pid := range append([]int{q.passed}, q.blockers...) {
		if holder == 0 && pid != 0 && !waiting(pid) && !slices.Contains(readers, pid) {
			holder = pid
		}
	}
	state := dialects.RowState{
		Table: r.table, Column: r.column, Value: r.value, Named: dialects.Named{Hash: r.hash, Name: q.name},
	}
	if s := p.sessions[holder]; s != nil {
		party := s.holder(q.turnstile, holder == q.passed)
		state.Holder = &party
	}
	for _, pid := range readers {
		if s := p.sessions[pid]; s != nil {
			party := s.holder(q.turnstile, true)
			party.Shared = true
			state.Readers = append(state.Readers, party)
		}
	}
	for _, l := range q.permits {
		party := p.sessions[l.PID].holder(l.id(), true)
		party.Permit = l.Permit
		state.Permits = append(state.Permits, party)
	}
	for _, w := range waits {
		if w.PID != holder {
			party := p.sessions[w.PID].party(w.Since)
			party.Shared = w.Shared || slices.Contains(q.readers, w.PID)
			state.Waiters = append(state.Waiters, party)
		}
	}
	return state
}

// inOrder has those first who came first. One that shares is not blocked by those in front that
// share too.
func inOrder(waits []lock) []lock {
	mixed := slices.ContainsFunc(waits, func(w lock) bool { return w.Shared })
	slices.SortFunc(waits, func(a, b lock) int {
		blockers := 0
		if !mixed {
			blockers = cmp.Compare(len(a.Blockers), len(b.Blockers))
		}
		return cmp.Or(blockers, cmp.Compare(seconds(a.Since), seconds(b.Since)), cmp.Compare(a.PID, b.PID))
	})
	return waits
}

func seconds(since *float64) float64 {
	if since == nil { // it has only just begun
		return math.Inf(1)
	}
	return *since
}
