// Package locktable says what state a lock table is in, and what to do about it.
package locktable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/txlock/txlock/dialects"
)

// What the names of the tables beside a lock table end with.
const (
	Epochs  = "_epochs"  // of tokens
	Runs    = "_runs"    // of the server, with their epochs
	Leaders = "_leaders" // the seats of elections, and their records
	Markers = "_once"    // of work that is done once
	Permits = "_permits" // of semaphores
	Claims  = "_claims"  // of what is held without a connection
)

// QueuePermit is that of the row which is a semaphore's queue. All others are less.
const QueuePermit = 1000

// NotInstalled adds to the server's error that the lock table is not what Install makes.
func NotInstalled(table string, err error) error {
	return notInstalled(table, "is missing or has another shape: %w", err)
}

// NoFence adds to the server's error that what tokens are drawn from is missing, if the error names
// it.
func NoFence(table string, err error, names ...string) error {
	plain := strings.NewReplacer(`"`, "", "`", "")
	said := strings.ToLower(plain.Replace(err.Error()))
	for _, name := range names {
		if strings.Contains(said, strings.ToLower(plain.Replace(name))) {
			return notInstalled(table, "has no fence: %w", err)
		}
	}
	return err
}

func notInstalled(table, what string, args ...any) error {
	args = append([]any{dialects.ErrNotInstalled, table}, args...)
	return fmt.Errorf("%w: table %.100s "+what+" (run install, or the SQL of schema)", args...)
}

// ManyWriters refuses a node of a cluster whose nodes all take writes.
func ManyWriters(reason string) error {
	return fmt.Errorf("%w: all nodes of its cluster take writes (%s), and row locks exclude the sessions of one node "+
		"only", dialects.ErrUnsafeEngine, reason)
}

// CensusSQL asks a quoted table for all that Slots looks at, with an empty name.
func CensusSQL(quoted string) string {
	return "SELECT CONCAT_WS(' ', COUNT(*), COALESCE(MIN(slot), 0), COALESCE(MAX(slot), 0), " +
		"COALESCE(MIN(slots), 0), COALESCE(MAX(slots), 0), '') FROM " + quoted
}

// LastSQL asks a quoted table for the same by the last row alone, and for its name. A lock is to
// follow, which needs one row: that must be there, and state the same number of slots.
func LastSQL(quoted, name string) string {
	return "SELECT CONCAT_WS(' ', slot + 1, 0, slot, slots, slots, " + name + ") FROM " + quoted +
		" ORDER BY slot DESC LIMIT 1"
}

// Slots is the number of slots of a complete table, by the answer to either of them, or that which
// an Install for asked slots (0: any) gives the table, with an error that says what is missing. It
// is 0 where no Install helps. Every row carries the number, so that missing rows show. An empty
// table may give no row. The name is the one that LastSQL asks for.
func Slots(table string, answer []string, asked int) (slots int, name string, err error) {
	var rows, first, last, least, most int
	if len(answer) > 0 {
		_, err = fmt.Sscan(answer[0], &rows, &first, &last, &least, &most)
		fields := strings.SplitN(answer[0], " ", 6)
		if err != nil || len(fields) < 6 {
			return 0, "", NotInstalled(table, cmp.Or(err, errors.New("it does not say its name")))
		}
		name = fields[5]
	}
	switch {
	case rows == 0:
		return cmp.Or(asked, dialects.DefaultSlots), name, notInstalled(table, "is empty")
	case least != most:
		err = fmt.Errorf("%w: table %.100s has rows that were seeded for different numbers of slots, %d and %d",
			dialects.ErrNotInstalled, table, least, most)
	case asked != 0 && asked != most:
		err = fmt.Errorf("table %.100s is installed with %d slots, not %d: clients that disagree on that number do "+
			"not exclude each other; to change it, stop all clients, drop the table and install it anew", table,
			most, asked)
	case rows < most:
		return most, name, notInstalled(table, "has %d of %d slots", rows, most)
	case rows > most || first != 0 || last != rows-1:
		err = fmt.Errorf("%w: table %.100s has %d of %d slots, from %d to %d", dialects.ErrNotInstalled, table,
			rows, most, first, last)
	default:
		slots = rows
	}
	return slots, name, err
}

// Find looks up the lock table that table names. One that is missing, empty or cut short, or has
// another shape, is ErrNotInstalled.
func Find[Tx any](ctx context.Context, d dialects.Driver[Tx], table string) (found dialects.LockTable, err error) {
	layout, err := d.Info().Layout(table)
	if err != nil {
		return found, err
	}
	lines, err := d.Run(ctx, dialects.Query{SQL: layout.Find, Table: table, Reads: true})
	if err != nil {
		return found, err
	}
	if found.Slots, found.Name, err = Slots(table, lines, 0); err == nil {
		found.Kinds, err = layout.Kinds(found.Name)
	}
	return found, err
}

// ErrRows says that a request locked fewer rows than it named.
var ErrRows = errors.New("rows missing")

// MissingRows explains ErrRows. Existing are the values of rows that exist.
func MissingRows(r dialects.Request, existing []string) error {
	slices.Sort(existing)
	exist := len(slices.Compact(existing)) >= len(r.Values)
	missing := slices.IndexFunc(r.Values, func(v dialects.Value) bool { return !slices.Contains(existing, v.Text) })
	switch {
	case exist && r.Try:
		return fmt.Errorf("%w: another session holds it", dialects.ErrNotAcquired)
	case exist:
		return fmt.Errorf("%w: a row of %.100s changed or came while it was being locked", dialects.ErrNoRow, r.Table)
	case r.Slots > 0:
		return notInstalled(r.Table, "has no slot %s of %d", r.Values[missing].Text, r.Slots)
	}
	return fmt.Errorf("%w: table %.100s has no row where %.100s is %.100q, or it is a row named twice",
		dialects.ErrNoRow, r.Table, r.Column, r.Values[missing].Text)
}
