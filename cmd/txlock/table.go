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

// The columns of a table, from left to right. Who holds a lock matters more than what the session
// does: a narrow terminal cuts the lines.
const (
	colLock = iota
	colState
	colSession
	colFor
	colWaiting
	colApplication
	colClient
	colStatement
	columns
)

var headings = [columns]string{"LOCK", "STATE", "SESSION", "FOR", "WAITING", "APPLICATION", "CLIENT", "STATEMENT"}

const (
	gap        = 2  // between columns
	widestLock = 40 // or a third of the terminal, if the width is limited
)

// table is what status shows: a row for each holder or reader, and one for each waiter below it.
type table []row

type row struct {
	waits bool
	cells [columns]string
}

// unnamed stands for a holder whom the server does not name.
const unnamed = "?"

// tableOf makes the table. The locks that others wait for come first, longest wait first; then the
// rest, longest held first. asked has the keys of the command line by slot number.
func tableOf(all []txlock.Holding, asked map[string][]string) (t table) {
	for _, h := range slices.SortedStableFunc(slices.Values(all), holdings.ByUrgency) {
		name, waiting := lockName(h, asked[h.Row]), ""
		if len(h.Waiters) > 0 {
			waiting = strconv.Itoa(len(h.Waiters))
		}
		holders := holdings.Holders(h)
		if len(holders) == 0 {
			t = append(t, row{cells: [columns]string{colLock: name, colState: "passes on", colWaiting: waiting}})
		}
		for i, holder := range holders {
			if i > 0 && len(h.Readers) > 0 {
				name = "  and"
			}
			t = append(t, rowOf(name, holdings.State(h, holder), waiting, holder))
			waiting = ""
		}
		for i, waiter := range h.Waiters {
			place := fmt.Sprintf("  %d.", i+1)
			if key := terminal.Clean(waiter.Key); key != "" && waiter.Key != h.Key {
				place += " " + key
			}
			r := rowOf(place, holdings.Waits(waiter), "", waiter)
			r.waits = true
			t = append(t, r)
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

func rowOf(name, state, waiting string, s txlock.Session) row {
	cells := [columns]string{
		colLock: name, colState: state, colSession: terminal.Clean(s.ID), colWaiting: waiting,
		colApplication: terminal.Clean(s.Application), colClient: terminal.Clean(holdings.Client(s)),
		colStatement: doing(s),
	}
	if !s.Since.IsZero() || s.For > 0 { // else it is unknown
		cells[colFor] = round(s.For).String()
	}
	switch {
	case s.By != "":
		cells[colApplication], cells[colStatement] = terminal.Clean(s.By), "until "+clock(s.Until.Local(), time.Now())
	case s.Prepared != "":
		cells[colSession] = terminal.Clean(s.Prepared)
	case s.ID == "":
		cells[colSession] = unnamed
	}
	return row{cells: cells}
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
	rows, hidden := t, 0
	if room := height - 1; height > 0 && len(rows) > room { // without the headings
		room = max(room-1, 0)
		rows, hidden = rows[:room], len(rows)-room
	}
	widths := t.widths(width)
	write := func(cells [columns]string) string {
		var b strings.Builder
		for c, cell := range cells {
			b.WriteString(terminal.Fill(terminal.Cut(cell, widths[c]), widths[c]+gap))
		}
		return cutTo(strings.TrimRight(b.String(), " "), width)
	}
	lines := []string{style.In(terminal.Bold, write(headings))}
	for _, r := range rows {
		way := terminal.Cyan
		if r.waits {
			way = terminal.Faint
		}
		lines = append(lines, style.In(way, write(r.cells)))
	}
	if hidden > 0 {
		lines = append(lines, cutTo(fmt.Sprintf("… %d more lines", hidden), width))
	}
	return lines
}

// cutTo shortens a line; 0 means no limit.
func cutTo(line string, width int) string {
	if width == 0 {
		return line
	}
	return terminal.Cut(line, width)
}

func (t table) widths(width int) (widths [columns]int) {
	for c, heading := range headings {
		widths[c] = terminal.Columns(heading)
		for _, r := range t {
			widths[c] = max(widths[c], terminal.Columns(r.cells[c]))
		}
	}
	if width > 0 {
		widths[colLock] = min(widths[colLock], max(width/3, len("LOCK")), widestLock)
	}
	return widths
}
