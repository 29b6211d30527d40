package mysql

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
)

// rowName is a row as its user spells it: of slots, column is empty.
type rowName struct{ table, column, value string }

// rowOf tells rows apart that sessions in different databases spell alike.
type rowOf struct {
	table tableName
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
			column, err := quoteIdentifier(claim.Column, 1)
			if claim.Table == "" || err != nil {
				continue
			}
			column, _ = upTo(column[1:], '`')
			of := tableColumn{p.named(claim.Table, party.Database), strings.ToLower(column)}
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
	mixed := slices.ContainsFunc(locks, func(l rowLock) bool { return l.shared && l.waiting })
	slices.SortFunc(locks, func(a, b rowLock) int {
		if mixed && a.waiting && b.waiting && a.party != nil && b.party != nil {
			// Who shares is not blocked by those in front that share too: the places do not
			// compare.
			if first := a.party.Since.Compare(b.party.Since); first != 0 {
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
