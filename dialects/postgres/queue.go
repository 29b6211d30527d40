package postgres

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// rowName is a row as its user spells it. Column is empty for a slot.
type rowName struct{ table, column, value string }

func (n rowName) turnstile() int64 { return turnstileOf(n.table, cmp.Or(n.column, "slot"), n.value) }

// queue is what a picture shows of a row.
type queue struct {
	holder          int   // by xmax; 0 unknown
	turnstileHolder int   // has the row, or is the first to wait for it; 0 unknown
	onRow           []int // wait for the row itself
	waiting         []wait
}

// queues puts a picture together, row by row.
func (p picture) queues(table string, slots int, only []int) []dialects.RowState {
	rows := map[rowName]*queue{}
	at := func(name rowName) *queue {
		if rows[name] == nil {
			rows[name] = &queue{}
		}
		return rows[name]
	}
	for _, held := range p.held {
		at(rowName{table, "", held.Slot}).holder = held.PID
	}
	for _, awaited := range p.awaited {
		q := at(rowName{table, "", awaited.Slot})
		q.onRow = append(q.onRow, awaited.PID)
	}
	names := p.namesOfTurnstiles(table, slots, only)
	for _, t := range p.turnstiles {
		name, ours := names[t.number()]
		switch {
		case !ours:
		case t.Granted:
			at(name).turnstileHolder = t.PID
		default:
			q := at(name)
			q.waiting = append(q.waiting, t.wait)
		}
	}
	var states []dialects.RowState
	for name, q := range rows {
		if state := p.state(name, q); state.Holder != nil || len(state.Waiters) > 0 {
			states = append(states, state)
		}
	}
	return states
}

// namesOfTurnstiles are the rows behind the turnstiles: slots, which can be enumerated, and rows
// that sessions claim.
func (p picture) namesOfTurnstiles(table string, slots int, only []int) map[int64]rowName {
	present := make(map[int64]bool, len(p.turnstiles))
	for _, t := range p.turnstiles {
		present[t.number()] = true
	}
	names := make(map[int64]rowName, len(present))
	if len(present) == 0 {
		return names
	}
	note := func(name rowName) {
		if number := name.turnstile(); present[number] {
			names[number] = name
		}
	}
	for n := range slots {
		if only == nil {
			note(rowName{table, "", strconv.Itoa(n)})
		}
	}
	for _, n := range only {
		note(rowName{table, "", strconv.Itoa(n)})
	}
	for _, s := range p.sessions {
		_, _, claims := label.Read(s.Application)
		for _, claim := range claims {
			for _, value := range claim.Items {
				if claim.Table != "" {
					note(rowName{claim.Table, claim.Column, value})
				}
			}
		}
	}
	return names
}

func (p picture) state(name rowName, q *queue) dialects.RowState {
	waits := slices.Clone(q.waiting)
	slices.SortFunc(waits, func(a, b wait) int {
		return cmp.Or(cmp.Compare(len(a.Blockers), len(b.Blockers)), cmp.Compare(seconds(a.Since), seconds(b.Since)),
			cmp.Compare(a.PID, b.PID))
	})
	first, blockers := p.rowWaiters(name, q)
	waits = append(first, waits...)
	waiting := func(pid int) bool { return slices.ContainsFunc(waits, func(w wait) bool { return w.PID == pid }) }

	holder := q.holder
	for _, pid := range append([]int{q.turnstileHolder}, blockers...) {
		if holder == 0 && pid != 0 && !waiting(pid) {
			holder = pid
		}
	}
	state := dialects.RowState{Table: name.table, Column: name.column, Value: name.value, Holder: p.party(holder)}
	if state.Holder != nil && holder == q.turnstileHolder {
		state.Holder.Transaction += " " + strconv.FormatInt(name.turnstile(), 10)
	}
	for _, wait := range waits {
		if party := p.party(wait.PID); party != nil && wait.PID != holder {
			party.Since, party.For = span(wait.Since, p.session(wait.PID).Now)
			state.Waiters = append(state.Waiters, *party)
		}
	}
	return state
}

// rowWaiters are the sessions that wait for the row itself, in front of those for the turnstile,
// and the sessions that block them.
func (p picture) rowWaiters(name rowName, q *queue) (first []wait, blockers []int) {
	for _, wait := range p.rowWaits {
		onlyRow := slices.Contains(q.onRow, wait.PID)
		if !onlyRow && (wait.PID != q.turnstileHolder || name.column == "") {
			continue
		}
		locking, rows := p.lockingRows(wait.PID, name)
		if !onlyRow && !locking { // its work waits for another row
			continue
		}
		first = append(first, wait)
		if onlyRow || rows == 1 { // of several rows, which one it waits for is not known
			blockers = append(blockers, wait.Blockers...)
		}
	}
	slices.SortFunc(first, func(a, b wait) int { return cmp.Compare(len(a.Blockers), len(b.Blockers)) })
	return first, blockers
}

// lockingRows tells whether a session is running the statement that locks rows of the caller's, and
// how many rows its claim has.
func (p picture) lockingRows(pid int, name rowName) (locking bool, claimed int) {
	a := p.session(pid)
	request := dialects.Request{Table: name.table, Column: name.column, Values: []dialects.Value{{Text: name.value}}}
	rows, err := rowsOf(request)
	if a == nil || err != nil {
		return false, 0
	}
	_, _, claims := label.Read(a.Application)
	for _, claim := range claims {
		if claim.Table == name.table && claim.Column == name.column && slices.Contains(claim.Items, name.value) {
			claimed = len(claim.Items)
		}
	}
	own := "select " + rows.column + " from " + rows.table + " where "
	return strings.HasPrefix(a.Query, own) && strings.Contains(a.Query, " for update"), claimed
}

func (p picture) session(pid int) *activity {
	for i := range p.sessions {
		if p.sessions[i].PID == pid {
			return &p.sessions[i]
		}
	}
	return nil
}

// party is the session pid as a holder or waiter, or nil when it has ended meanwhile.
func (p picture) party(pid int) *dialects.Party {
	a := p.session(pid)
	if a == nil {
		return nil
	}
	party := &dialects.Party{
		Session: strconv.Itoa(pid), Transaction: a.Transaction, User: a.User,
		Database: a.Database, Host: a.Host,
	}
	party.Application, party.Process, party.Claims = label.Read(a.Application)
	if a.Port > 0 {
		party.Host = net.JoinHostPort(party.Host, strconv.Itoa(a.Port))
	}
	if a.State != "" { // the role may see the session
		party.Idle = strings.HasPrefix(a.State, "idle")
		party.Statement = a.Query
		party.Claims = told(party.Claims, a.Query)
	}
	party.Since, party.For = span(a.Begun, a.Now)
	return party
}

func seconds(value *float64) float64 {
	if value == nil { // it has only just begun
		return float64(1 << 62)
	}
	return *value
}

// span is a time in seconds since 1970, and how long ago it is.
func span(since *float64, now float64) (time.Time, time.Duration) {
	if since == nil {
		return time.Time{}, 0
	}
	return time.UnixMicro(int64(*since * 1e6)), max(time.Duration((now-*since)*float64(time.Second)), 0)
}
