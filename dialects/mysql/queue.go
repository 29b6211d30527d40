package mysql

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// rowName is a row as its user spells it: of slots, column is empty.
type rowName struct{ table, column, value string }

// rowOf tells rows apart that sessions in different databases spell alike.
type rowOf struct {
	table sqltext.Table
	rowName
}

// queues puts the picture together, row by row.
func (p *picture) queues() []dialects.RowState {
	names := p.claimed()
	rows := map[rowOf][]rowLock{}
	for _, lock := range p.locks {
		if name, known := p.rowOf(lock, names); known {
			rows[rowOf{lock.table, name}] = append(rows[rowOf{lock.table, name}], lock)
		}
	}
	states := make([]dialects.RowState, 0, len(rows))
	for row, locks := range rows {
		state := state(row.rowName, locks)
		if state.Holder != nil || len(state.Readers)+state.Sharing+len(state.Waiters) > 0 {
			states = append(states, state)
		}
	}
	return states
}

// claimed are the rows of callers' tables that sessions say they lock, by column and value.
func (p *picture) claimed() map[tableColumn]map[string]rowName {
	names := map[tableColumn]map[string]rowName{}
	for _, party := range p.people {
		for _, claim := range party.Claims {
			column, err := sqltext.QuoteColumn(claim.Column)
			if claim.Table == "" || err != nil {
				continue
			}
			of := tableColumn{p.named(claim.Table, party.Database), strings.ToLower(sqltext.TableOf(column, "").Name)}
			if names[of] == nil {
				names[of] = map[string]rowName{}
			}
			for _, value := range claim.Items {
				names[of][value] = rowName{claim.Table, claim.Column, value}
			}
		}
	}
	return names
}

// rowOf names the row that is locked. A record of an index that begins with another column does not
// tell.
func (p *picture) rowOf(lock rowLock, names map[tableColumn]map[string]rowName) (name rowName, known bool) {
	if lock.table == p.slots() {
		_, err := strconv.Atoi(lock.value) // else the end of the index, or a page that is not in memory
		return rowName{p.table, "", lock.value}, lock.index == primary && err == nil
	}
	column, known := p.leading[lock.table][lock.index]
	if known {
		name, known = names[tableColumn{lock.table, column}][lock.value]
	}
	return name, known
}

func state(name rowName, locks []rowLock) dialects.RowState {
	state := dialects.RowState{Table: name.table, Column: name.column, Value: name.value}
	compareWaits := byPlace(locks)
	slices.SortFunc(locks, func(a, b rowLock) int {
		if a.waiting && b.waiting {
			if first := compareWaits(a, b); first != 0 {
				return first
			}
		}
		return cmp.Or(compareBool(a.waiting, b.waiting), cmp.Compare(a.place, b.place), compareBool(a.shared, b.shared),
			compareBool(a.session == "", b.session == ""), // who is known goes first
			cmp.Compare(len(a.session), len(b.session)), cmp.Compare(a.session, b.session))
	})
	waits := map[string]bool{}
	for _, lock := range locks {
		waits[lock.session] = waits[lock.session] || lock.waiting
	}
	var unsure suspects
	seen := map[string]bool{}
	for _, lock := range locks {
		sharing := lock.shared && !lock.waiting && waits[lock.session] // and it waits to own the row
		if lock.party == nil || seen[lock.session] || sharing {
			continue
		}
		seen[lock.session] = true
		shown := *lock.party
		shown.Transaction, shown.Shared = lock.transaction, lock.shared
		switch {
		case lock.waiting:
			state.Waiters = append(state.Waiters, shown)
		case lock.sharing > 0:
			unsure.sharing = max(unsure.sharing, lock.sharing)
			unsure.parties = append(unsure.parties, shown)
		case lock.shared:
			state.Readers = append(state.Readers, shown)
		case state.Holder == nil:
			state.Holder = &shown
		}
	}
	if state.Holder == nil { // else it is the lock of one that waits, and blocks those behind
		unsure.settle(&state)
	}
	return state
}

// byPlace compares waits for one row. Who wants it alone has everybody in front, and who shares has
// those in front that want it alone: their places do not compare. So the former are numbered, and
// the latter come behind as many of them as they have in front. The times tell those apart that
// share: of others they may be off, for the server reads one session after the other.
func byPlace(locks []rowLock) func(a, b rowLock) int {
	var alone []int // places
	holders := 0
	for _, lock := range locks {
		switch {
		case lock.shared:
		case lock.waiting:
			alone = append(alone, lock.place)
		default:
			holders = 1
		}
	}
	slices.Sort(alone)
	position := func(lock rowLock) int {
		if lock.shared {
			return 2 * (lock.place - holders)
		}
		number, _ := slices.BinarySearch(alone, lock.place)
		return 2*number + 1
	}
	return func(a, b rowLock) int {
		first := cmp.Compare(position(a), position(b))
		if first == 0 && a.shared && b.shared && a.party != nil && b.party != nil {
			first = a.party.Since.Compare(b.party.Since)
		}
		return first
	}
}

// compareBool puts false first.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
