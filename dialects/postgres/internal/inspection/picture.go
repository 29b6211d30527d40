package inspection

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// picture is what the server's views show of sessions and their locks, read in one round trip.
type picture struct {
	slots    int
	tables   []ours
	sessions map[int]*session
	passed   map[int]int // how many turnstiles each session has
}

// row is what is held, as its user spells it, and its table.
type row struct{ quoted, table, column, value string }

// queue is what a picture shows of a row.
type queue struct {
	dialects.RowState
	passed, waiting []lock // at the turnstile
}

// states puts the picture together, from the columns of each of the tables, of callers' rows and of
// sessions.
func (p *picture) states(columns [][]string) (states []dialects.RowState, err error) {
	var sessions []*session
	if err := decode(columns[len(columns)-1], &sessions); err != nil {
		return nil, err
	}
	p.sessions, p.passed = map[int]*session{}, map[int]int{}
	callers := map[int64]row{} // by the numbers of their turnstiles
	for _, s := range sessions {
		s.label = label.Read(s.Application)
		p.sessions[s.PID] = s
		s.label.Rows(func(table, column, value string) {
			quoted, _ := sqltext.QuoteTable(table)
			callers[sqltext.Turnstile(table, column, value)] = row{quoted, table, column, value}
		})
	}
	queues := map[row]*queue{}
	for n, column := range columns[:len(columns)-1] {
		var locks []lock
		if err := decode(column, &locks); err != nil {
			return nil, err
		}
		slices.SortFunc(locks, func(a, b lock) int { return cmp.Compare(a.PID, b.PID) })
		for _, l := range locks {
			of, known := callers[l.hash()]
			if n < len(p.tables) {
				of, known = row{quoted: p.tables[n].quoted, value: strconv.Itoa(int(int32(l.Low)))}, true
			}
			if !known || l.Prepared == nil && !p.sessions[l.PID].in(l) {
				continue
			}
			if queues[of] == nil {
				state := dialects.RowState{Table: of.table, Column: of.column, Value: of.value, Permit: l.Permit}
				if n < len(p.tables) {
					state.Named = dialects.Named{Kind: p.tables[n].kind, Hash: l.Hash, Name: l.Name}
				}
				queues[of] = &queue{RowState: state}
			}
			if l.Granted {
				queues[of].passed = append(queues[of].passed, l)
				p.passed[l.PID]++
			} else {
				queues[of].waiting = append(queues[of].waiting, l)
			}
		}
	}
	for of, q := range queues {
		p.fill(of, q)
		states = append(states, q.RowState)
	}
	return states, nil
}

// fill says who holds a row, who shares it and who waits. Who has passed the turnstile has the row,
// or waits for it in front of those at the turnstile.
func (p *picture) fill(of row, q *queue) {
	var first []lock
	var outside []int // have the row without the turnstile
	for _, l := range q.passed {
		s := p.sessions[l.PID]
		if l.Prepared != nil || !s.locks(of.quoted) {
			q.hold(p.holder(of, q, l), l.Shared)
			continue
		}
		l.Since = s.Since
		first = append(first, l)
		if p.passed[l.PID] == 1 { // of several rows, which one it waits for is not known
			outside = append(outside, s.Blockers...)
		}
	}
	for _, pid := range outside {
		if s := p.sessions[pid]; s != nil && !slices.ContainsFunc(q.passed, func(l lock) bool { return l.PID == pid }) {
			q.hold(s.holder(""), false)
		}
	}
	for _, l := range append(inOrder(first), inOrder(q.waiting)...) {
		waiter := p.sessions[l.PID].party(l.Since)
		waiter.Shared, waiter.Key = l.Shared, p.key(of, q, l)
		q.Waiters = append(q.Waiters, waiter)
	}
}

func (q *queue) hold(party dialects.Party, shared bool) {
	if party.Shared = shared; shared {
		q.Readers = append(q.Readers, party)
	} else if q.Holder == nil {
		q.Holder = &party
	}
}

func (p *picture) holder(of row, q *queue, l lock) (party dialects.Party) {
	if l.Prepared != nil {
		party = dialects.Party{Prepared: *l.Prepared, User: l.Owner, Transaction: l.Transaction}
		party.Since, party.For = times(l.Since, l.Now)
		return party
	}
	party = p.sessions[l.PID].holder(fmt.Sprintf("%d:%d:%d", l.Sub, l.High, l.Low))
	party.Key = p.key(of, q, l)
	return party
}

// key is what a session named of a slot.
func (p *picture) key(of row, q *queue, l lock) string {
	if q.Named.Kind != dialects.KindRow || of.column != "" {
		return ""
	}
	return p.sessions[l.PID].label.Key(int(int32(l.Low)), p.slots)
}

// inOrder has those first who came first. One that has only just begun shows no time.
func inOrder(waits []lock) []lock {
	since := func(l lock) float64 {
		if l.Since == nil {
			return math.Inf(1)
		}
		return *l.Since
	}
	slices.SortFunc(waits, func(a, b lock) int { return cmp.Or(cmp.Compare(since(a), since(b)), cmp.Compare(a.PID, b.PID)) })
	return waits
}
