package inspection

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// rowName is a row as its user spells it. Column is empty for a slot.
type rowName struct{ table, column, value string }

// queue is what a picture shows of a row.
type queue struct {
	holder          int // by xmax; 0 unknown
	turnstileHolder int // has the row, or is the first to wait for it; 0 unknown
	turnstile       string
	readers         []int // have passed the turnstile in shared form, or lock the row without it
	onRow           []int // wait for the row itself
	waiting         []waiter
}

// queues puts a picture together, row by row.
func (p picture) queues(table string, only []int) []dialects.RowState {
	rows := map[rowName]*queue{}
	at := func(name rowName) *queue {
		if rows[name] == nil {
			rows[name] = &queue{}
		}
		return rows[name]
	}
	for _, held := range p.held {
		switch {
		case p.owns(held):
			at(rowName{table, "", held.Slot}).holder = held.PID
		case held.Certain && p.sharesAll(held.PID):
			q := at(rowName{table, "", held.Slot})
			q.readers = append(q.readers, held.PID)
		case held.Certain:
			at(rowName{table, "", held.Slot}).holder = held.PID
		}
	}
	for _, awaited := range p.awaited {
		q := at(rowName{table, "", awaited.Slot})
		q.onRow = append(q.onRow, awaited.PID)
	}
	claimed := p.claimedRows()
	for _, t := range p.turnstiles {
		name, known := claimed[t.hash()]
		if t.ofTable() {
			name, known = rowName{table, "", strconv.Itoa(int(int32(t.Low)))}, int32(t.Low) >= 0
		}
		switch {
		case !known || only != nil && (name.column != "" || !slices.Contains(only, int(t.Low))):
		case t.Granted && t.Shared:
			q := at(name)
			q.readers, q.turnstile = append(q.readers, t.PID), t.id()
		case t.Granted:
			at(name).turnstileHolder, at(name).turnstile = t.PID, t.id()
		default:
			q := at(name)
			t.waiter.shared = t.Shared
			q.waiting = append(q.waiting, t.waiter)
		}
	}
	var states []dialects.RowState
	for name, q := range rows {
		if state := p.state(name, q); state.Holder != nil || len(state.Readers) > 0 || len(state.Waiters) > 0 {
			states = append(states, state)
		}
	}
	return states
}

// claimedRows are the rows of callers' tables that sessions claim, by the numbers of their
// turnstiles.
func (p picture) claimedRows() map[int64]rowName {
	names := map[int64]rowName{}
	for _, s := range p.sessions {
		_, _, claims := label.Read(s.Application)
		for _, claim := range claims {
			for _, value := range claim.Items {
				if claim.Table != "" {
					name := rowName{claim.Table, claim.Column, value}
					names[sqltext.Turnstile(claim.Table, claim.Column, value)] = name
				}
			}
		}
	}
	return names
}

func (p picture) state(name rowName, q *queue) dialects.RowState {
	waits := slices.Clone(q.waiting)
	mixed := slices.ContainsFunc(waits, func(w waiter) bool { return w.shared })
	slices.SortFunc(waits, func(a, b waiter) int {
		blockers := cmp.Compare(len(a.Blockers), len(b.Blockers))
		if mixed { // one that shares is not blocked by those in front that share too
			blockers = 0
		}
		return cmp.Or(blockers, cmp.Compare(seconds(a.Since), seconds(b.Since)), cmp.Compare(a.PID, b.PID))
	})
	first, blockers := p.rowWaiters(name, q)
	waits = append(first, waits...)
	waiting := func(pid int) bool { return slices.ContainsFunc(waits, func(w waiter) bool { return w.PID == pid }) }

	readers := slices.DeleteFunc(slices.Clone(q.readers), func(pid int) bool {
		return pid == q.turnstileHolder || waiting(pid)
	})
	slices.Sort(readers)
	readers = slices.Compact(readers)
	holder := q.holder
	for _, pid := range append([]int{q.turnstileHolder}, blockers...) {
		switch {
		case holder != 0 || pid == 0 || waiting(pid) || slices.Contains(readers, pid):
		case name.column == "" && pid != q.turnstileHolder && p.sharesAll(pid):
			readers = append(readers, pid)
		default:
			holder = pid
		}
	}
	readers = slices.DeleteFunc(readers, func(pid int) bool { return pid == holder })
	state := dialects.RowState{Table: name.table, Column: name.column, Value: name.value}
	if state.Holder = p.party(holder); state.Holder != nil {
		p.pin(state.Holder, holder, holder == q.turnstileHolder, q)
	}
	for _, pid := range readers {
		if reader := p.party(pid); reader != nil {
			reader.Shared = true
			p.pin(reader, pid, slices.Contains(q.readers, pid) && !p.sharesAll(pid), q)
			state.Readers = append(state.Readers, *reader)
		}
	}
	for _, wait := range waits {
		if party := p.party(wait.PID); party != nil && wait.PID != holder {
			party.Since, party.For = span(wait.Since, p.session(wait.PID).Now)
			party.Shared = wait.shared || slices.Contains(q.readers, wait.PID)
			state.Waiters = append(state.Waiters, *party)
		}
	}
	return state
}

// pin has the party say which hold it is, for End.
func (p picture) pin(party *dialects.Party, pid int, passed bool, q *queue) {
	h := held{transaction: party.Transaction, granted: firstGrant(*p.session(pid))}
	if passed {
		h.turnstile = q.turnstile
	}
	party.Transaction = h.String()
}

// owns tells whether a session that xmax names has the slot alone: it has the turnstile, or those
// of all slots, in exclusive form.
func (p picture) owns(held slotOf) bool {
	return slices.ContainsFunc(p.turnstiles, func(t turnstile) bool {
		number := strconv.Itoa(int(int32(t.Low)))
		return t.PID == held.PID && t.ofTable() && t.Granted && !t.Shared &&
			(number == held.Slot || number == strconv.Itoa(sqltext.WideGate))
	})
}

// sharesAll tells whether a session shares more slots than it has turnstiles.
func (p picture) sharesAll(pid int) bool {
	passed := map[string]bool{}
	for _, t := range p.turnstiles {
		if t.PID == pid && t.ofTable() && t.Granted && t.Shared {
			passed[strconv.Itoa(int(int32(t.Low)))] = true
		}
	}
	return passed[strconv.Itoa(sqltext.Gate)] && passed[strconv.Itoa(sqltext.WideGate)]
}

// rowWaiters are the sessions that wait for the row itself, in front of those for the turnstile,
// and the sessions that block them.
func (p picture) rowWaiters(name rowName, q *queue) (first []waiter, blockers []int) {
	for _, wait := range p.rowWaits {
		onlyRow := slices.Contains(q.onRow, wait.PID)
		passed := wait.PID == q.turnstileHolder || slices.Contains(q.readers, wait.PID)
		if !onlyRow && (!passed || name.column == "") {
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
	slices.SortFunc(first, func(a, b waiter) int { return cmp.Compare(len(a.Blockers), len(b.Blockers)) })
	return first, blockers
}

// lockingRows tells whether a session is running the statement that locks rows of the caller's, and
// how many rows its claim has.
func (p picture) lockingRows(pid int, name rowName) (locking bool, claimed int) {
	a := p.session(pid)
	table, _ := sqltext.QuoteTable(name.table) // it was locked by that name
	column, _ := sqltext.QuoteColumn(name.column)
	if a == nil {
		return false, 0
	}
	_, _, claims := label.Read(a.Application)
	for _, claim := range claims {
		if claim.Table == name.table && claim.Column == name.column && slices.Contains(claim.Items, name.value) {
			claimed = len(claim.Items)
		}
	}
	locking = strings.Contains(a.Query, sqltext.SelectFrom(table, column)+" where ") && // maybe inside another
		(strings.Contains(a.Query, sqltext.ForNoKeyUpdate) || strings.Contains(a.Query, sqltext.ForShare))
	// The server cuts a text of 1 kB, and so one of several statements.
	return locking || claimed > 0 && strings.Contains(a.Query, sqltext.Tag), claimed
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

// told has claims tell what the last heartbeat said, if that came last.
func told(claims []dialects.Claim, query string) []dialects.Claim {
	count, isPing := strings.CutPrefix(query, sqltext.Ping)
	count, _, _ = strings.Cut(count, "\n") // a renewal goes on, or a question
	if behind, err := strconv.ParseUint(count, 10, 31); isPing && err == nil && len(claims) > 0 {
		claims[0].Behind = int(behind)
	}
	return claims
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
