package inspection

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// row is one as its user spells it, in a table that others may spell alike: of the target's, column
// is empty.
type row struct {
	in                   sqltext.Table
	table, column, value string
}

// states puts the picture together, row by row.
func (p *picture) states() []dialects.RowState {
	shown := p.shown()
	rows := map[row][]rowLock{}
	for _, lock := range p.locks {
		name, known := row{p.own, p.table, "", lock.value}, lock.index == primary
		if lock.table != p.own { // whose index tells of which column the value is
			name, known = shown[lock.table][p.leading[lock.table][lock.index]][lock.value]
		} else if _, err := strconv.Atoi(lock.value); err != nil { // the end of the index, or not in memory
			known = false
		}
		if known {
			rows[name] = append(rows[name], lock)
		}
	}
	states := make([]dialects.RowState, 0, len(rows))
	for row, locks := range rows {
		state := state(row, locks)
		if state.Holder != nil || len(state.Readers)+state.Sharing+len(state.Waiters) > 0 {
			states = append(states, state)
		}
	}
	return states
}

// shownRows are rows by table, column and value. Columns are in small letters: case never matters
// in their names.
type shownRows map[sqltext.Table]map[string]map[string]row

// shown are the rows of callers' tables that sessions say they lock. The table of leaders is not
// among those: it is looked at apart.
func (p *picture) shown() shownRows {
	var seats sqltext.Table
	if leaders, err := sqltext.Beside(p.table, locktable.Leaders); err == nil {
		seats = p.parsed(leaders, p.database)
	}
	rows := shownRows{}
	for _, party := range p.people {
		for _, one := range party.Shown {
			quoted, err := sqltext.QuoteTable(one.Table)
			column, failed := sqltext.QuoteColumn(one.Column)
			table := p.parsed(quoted, party.Database)
			if err != nil || failed != nil || table == p.own || table == seats || len(one.Items) == 0 ||
				table.Database == "" || !utf8.ValidString(table.Database) { // it came in this session's character set
				continue
			}
			column = strings.ToLower(sqltext.TableOf(column, "").Name)
			if rows[table] == nil {
				rows[table] = map[string]map[string]row{}
			}
			if rows[table][column] == nil {
				rows[table][column] = map[string]row{}
			}
			for _, value := range one.Items {
				rows[table][column][value] = row{table, one.Table, one.Column, value}
			}
		}
	}
	return rows
}

// state is who has locks of a row, and who waits for them.
func state(of row, locks []rowLock) dialects.RowState {
	position, waits := positions(locks), map[string]bool{}
	for _, lock := range locks {
		waits[lock.session] = waits[lock.session] || lock.waiting
	}
	locks = slices.DeleteFunc(locks, func(lock rowLock) bool {
		return lock.party == nil || lock.shared && !lock.waiting && waits[lock.session] // and it waits to own the row
	})
	slices.SortFunc(locks, func(a, b rowLock) int {
		first := cmp.Compare(position(a), position(b))
		if first == 0 && a.waiting {
			first = a.party.Since.Compare(b.party.Since)
		}
		return cmp.Or(first, cmp.Compare(len(a.session), len(b.session)), cmp.Compare(a.session, b.session))
	})
	state := dialects.RowState{Table: of.table, Column: of.column, Value: of.value}
	var suspects []dialects.Party // of whom some share the row, on MariaDB
	sharing, seen := 0, map[string]bool{}
	for _, lock := range locks {
		if seen[lock.session] {
			continue
		}
		seen[lock.session] = true
		shown := *lock.party
		shown.Transaction, shown.Shared = lock.transaction, lock.shared
		switch {
		case lock.waiting:
			state.Waiters = append(state.Waiters, shown)
		case lock.sharing > 0:
			sharing, suspects = max(sharing, lock.sharing), append(suspects, shown)
		case lock.shared:
			state.Readers = append(state.Readers, shown)
		case state.Holder == nil:
			state.Holder = &shown
		}
	}
	// What sessions show of their keys would not tell which suspects it are: another lock table may
	// have the same key, and Break must not end a session of that.
	switch {
	case state.Holder != nil: // it is the lock of one that waits, and blocks those behind
	case len(suspects) <= sharing:
		state.Readers = append(state.Readers, suspects...)
	default:
		state.Sharing = sharing
	}
	return state
}

// positions puts the locks of a row in order: who owns it, who shares it, and then the queue.
// There, who wants to own it has everybody in front, and who shares has those in front that want to
// own it: their places do not compare. So the former are numbered, and the latter come behind as
// many of them as they have in front. The times tell those apart that share and have the same
// position: of others they may be off, for the server reads one session after the other.
func positions(locks []rowLock) func(rowLock) int {
	var owning []int // places
	owners := 0
	for _, lock := range locks {
		switch {
		case lock.shared:
		case lock.waiting:
			owning = append(owning, lock.place)
		default:
			owners = 1
		}
	}
	slices.Sort(owning)
	return func(lock rowLock) int {
		switch {
		case lock.waiting && lock.shared:
			return max(2*(lock.place-owners), 0)
		case lock.waiting:
			number, _ := slices.BinarySearch(owning, lock.place)
			return 2*number + 1
		case lock.shared:
			return -1
		}
		return -2
	}
}
