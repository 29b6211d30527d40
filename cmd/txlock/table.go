package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/terminal"
	"github.com/txlock/txlock/internal/holdings"
)

// The columns of a table, from left to right.
const (
	colLock = iota
	colState
	colFor
	colWaiting
	colSince
	colSession
	colApplication
	colProcess
	colHost
	colUser
	colStatement
	columns
)

var headings = [columns]string{
	"LOCK", "STATE", "FOR", "WAITING", "SINCE", "SESSION", "APPLICATION", "PROCESS", "HOST", "USER",
	"STATEMENT",
}

// dropped are the columns that a narrow terminal omits, in this order. Who holds a lock matters
// more than what the session does.
var dropped = []int{colSince, colUser, colStatement, colHost, colApplication, colProcess, colWaiting}

const (
	gap            = 2  // between columns
	leastStatement = 16 // columns, or the length of the statement if that is less
	widestLock     = 40 // if the width is limited
	leastLock      = 16 // if there is no room for more
)

// table is what status shows: a row for each holder or reader, and one for each waiter below it.
type table []row

type row struct {
	kind  rowKind
	cells [columns]string
}

type rowKind int

const (
	rowLock    rowKind = iota // a lock that nobody waits for
	rowAwaited                // a lock that somebody waits for
	rowReader                 // a further session that shares it
	rowWaiter
)

// unnamed stands for a holder whom the server does not name.
const unnamed = "?"

// tableOf makes the table. The locks that others wait for come first, longest wait first; then the
// rest, longest held first. asked has the keys of the command line by slot number.
func tableOf(all []txlock.Holding, asked map[string][]string) (t table) {
	for _, h := range slices.SortedStableFunc(slices.Values(all), holdings.ByUrgency) {
		kind, name, waiting := rowLock, lockName(h, asked[h.Row]), ""
		if len(h.Waiters) > 0 {
			kind, waiting = rowAwaited, strconv.Itoa(len(h.Waiters))
		}
		holders := holdings.Holders(h)
		if len(holders) == 0 {
			cells := [columns]string{colLock: name, colState: "passes on", colWaiting: waiting}
			t = append(t, row{kind, cells})
		}
		for i, holder := range holders {
			if i > 0 && len(h.Readers) > 0 {
				kind, name = rowReader, "  and"
			}
			t.add(kind, name, holdings.State(h, holder), waiting, holder)
			waiting = ""
		}
		for i, waiter := range h.Waiters {
			place := fmt.Sprintf("  %d.", i+1)
			if key := terminal.Clean(waiter.Key); key != "" && waiter.Key != h.Key {
				place += " " + key
			}
			t.add(rowWaiter, place, holdings.Waits(waiter), "", waiter)
		}
	}
	return t
}

// lockName is the name of a lock in the table: its key, if a session names it. It adds other keys
// by which the command line named the slot.
func lockName(h txlock.Holding, asked []string) string {
	switch {
	case holdings.IsSemaphore(h):
		return terminal.Clean("permits of " + h.Key)
	case holdings.IsElection(h):
		return terminal.Clean("leader of " + h.Key)
	case holdings.IsClaim(h):
		return terminal.Clean("claim " + h.Key)
	case h.Column != "":
		return terminal.Clean(holdings.Row(h))
	}
	name, of := h.Key, ", in the slot of "
	if name == "" {
		name, of = "slot "+h.Row, " of "
	}
	var others []string
	for _, key := range asked {
		if h.Key == "" || otherKey(h.Key, key) != "" {
			others = append(others, key)
		}
	}
	if len(others) > 0 {
		name += of + strings.Join(others, ", ")
	}
	return terminal.Clean(name)
}

func (t *table) add(kind rowKind, name, state, waiting string, s txlock.Session) {
	cells := [columns]string{
		colLock: name, colState: state, colFor: round(s.For).String(), colWaiting: waiting,
		colSession: terminal.Clean(s.ID), colApplication: terminal.Clean(s.Application),
		colHost: terminal.Clean(s.Host), colUser: terminal.Clean(s.User), colStatement: doing(s),
	}
	if !s.Since.IsZero() {
		cells[colSince] = clock(s.Since.Local(), time.Now())
	} else if s.For == 0 {
		cells[colFor] = "" // unknown
	}
	switch {
	case s.By != "":
		cells[colApplication], cells[colStatement] = terminal.Clean(s.By), "until "+clock(s.Until.Local(), time.Now())
	case s.Prepared != "":
		cells[colSession] = terminal.Clean(s.Prepared)
	case s.ID == "":
		cells[colSession] = unnamed
	}
	if s.Process > 0 {
		cells[colProcess] = strconv.Itoa(s.Process)
	}
	*t = append(*t, row{kind, cells})
}

// ownMarks occur in the statements with which txlock locks, releases and sends heartbeats. Such
// statements add nothing to the table.
var ownMarks = []string{
	"pg_advisory_xact_lock", "pg_try_advisory_xact_lock", "savepoint txlock_", "/* txlock ", "@txlock",
	"concat(epoch, ' ', ", "set_config('idle_in_transaction_session_timeout", "-- txlock ping", "txlock.idle",
}

// statementOf returns the statement that a session runs or ran last, unless it is txlock's own.
func statementOf(s txlock.Session) string {
	statement := terminal.Clean(s.Statement)
	for _, mark := range ownMarks {
		if strings.Contains(statement, mark) {
			return ""
		}
	}
	return statement
}

func doing(s txlock.Session) string {
	statement := statementOf(s)
	switch {
	case !s.Idle:
		return statement
	case statement == "":
		return "idle"
	}
	return "idle after " + statement
}

// clock formats a time, without the date if it is today.
func clock(at, now time.Time) string {
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format(time.TimeOnly)
	}
	return at.Format("Jan _2 15:04")
}

// lines writes the table into the given columns and lines; 0 means no limit. It counts the rows for
// which there is no room.
func (t table) lines(width, height int, style terminal.Style) []string {
	shown, widths := t.fit(width)
	fit := func(line string) string {
		if width > 0 {
			return terminal.Cut(line, width)
		}
		return line
	}
	write := func(cells [columns]string) string {
		var b strings.Builder
		for c, cell := range cells {
			if shown[c] {
				b.WriteString(terminal.Fill(terminal.Cut(cell, widths[c]), widths[c]+gap))
			}
		}
		return fit(strings.TrimRight(b.String(), " "))
	}
	rows, hidden := t, table(nil)
	var legend []string
	if slices.ContainsFunc(t, func(r row) bool { return r.cells[colSession] == unnamed }) {
		legend = []string{unnamed + "  held, but the server did not say by whom"}
	}
	if height > 0 {
		legend = legend[:min(len(legend), max(height-2, 0))]
	}
	room := height - 1 - len(legend) // without the headings
	if height > 0 && len(rows) > room {
		room = max(room-1, 0)
		rows, hidden = rows[:room], rows[room:]
	}
	lines := []string{style.In(terminal.Bold, write(headings))}
	for _, r := range rows {
		way := terminal.Cyan
		if r.kind == rowWaiter {
			way = terminal.Faint
		}
		lines = append(lines, style.In(way, write(r.cells)))
	}
	if len(hidden) > 0 {
		lines = append(lines, fit(summary(hidden)))
	}
	for _, line := range legend {
		lines = append(lines, fit(line))
	}
	return lines
}

// summary says how many rows were left out, by kind.
func summary(hidden table) string {
	var count [rowWaiter + 1]int
	for _, r := range hidden {
		count[r.kind]++
	}
	return fmt.Sprintf("… %d more lines: awaited locks %d, waiters %d, others %d", len(hidden), count[rowAwaited],
		count[rowWaiter], count[rowLock]+count[rowReader])
}

// fit chooses the columns to show and their widths.
func (t table) fit(width int) (shown [columns]bool, widths [columns]int) {
	var filled [columns]bool
	for c := range columns {
		shown[c] = true
		widths[c] = terminal.Columns(headings[c])
		for _, r := range t {
			widths[c] = max(widths[c], terminal.Columns(r.cells[c]))
			filled[c] = filled[c] || r.cells[c] != ""
		}
	}
	if width == 0 {
		return shown, widths
	}
	widths[colLock] = min(widths[colLock], widestLock)
	statement := widths[colStatement]
	widths[colStatement] = min(statement, leastStatement)
	total := -gap
	for c := range columns {
		total += widths[c] + gap
	}
	drop := func(droppable func(c int) bool) {
		for _, c := range dropped {
			if total > width && shown[c] && droppable(c) {
				shown[c] = false
				total -= widths[c] + gap
			}
		}
	}
	drop(func(c int) bool { return !filled[c] }) // empty columns first
	drop(func(int) bool { return true })
	widths[colStatement] = min(statement, widths[colStatement]+max(0, width-total))
	widths[colLock] = max(min(widths[colLock], leastLock), widths[colLock]-max(0, total-width))
	return shown, widths
}
