// Package locktable says what state a lock table is in, and what to do about it.
package locktable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// advice is for programs.
const advice = " (run Install, or the SQL of Schema)"

// WithoutAdvice is the text of err for a user at a shell, who has no Install to call.
func WithoutAdvice(err error) string { return strings.Replace(err.Error(), advice, "", 1) }

// NotInstalled adds to the server's error that the lock table is not what Install makes.
func NotInstalled(table string, err error) error {
	return notInstalled(table, "is missing or has another shape: %w", err)
}

// NoSlot says that the lock table lacks a slot of so many.
func NoSlot(table, slot string, slots int) error {
	return notInstalled(table, "has no slot %s of %d", slot, slots)
}

// NoFence adds to the server's error that what tokens are drawn from is missing, if the error names
// it.
func NoFence(table string, err error, names ...string) error {
	plain := strings.NewReplacer(`"`, "", "`", "")
	for _, name := range names {
		if strings.Contains(strings.ToLower(plain.Replace(err.Error())), strings.ToLower(plain.Replace(name))) {
			return notInstalled(table, "has no fence: %w", err)
		}
	}
	return err
}

func notInstalled(table, what string, args ...any) error {
	args = append([]any{dialects.ErrNotInstalled, table}, args...)
	return fmt.Errorf("%w: table %.100s "+what+advice, args...)
}

// Older says that Install has not made a table beside the lock table, because version 0.1 had done
// so, which knows semaphores and elections by their names. Clients of both versions would not
// exclude each other, so nothing changes the table while it may be in use.
func Older(table string) error {
	return fmt.Errorf("%w: table %.100s was made by version 0.1: stop what leads or takes permits, run DROP TABLE "+
		"%[2]s, and then Install", dialects.ErrNotInstalled, table)
}

// ManyWriters refuses a node of a cluster whose nodes all take writes.
func ManyWriters(reason string) error {
	return fmt.Errorf("%w: all nodes of its cluster take writes (%s), and row locks exclude the sessions of one node "+
		"only", dialects.ErrUnsafeEngine, reason)
}

// CensusSQL asks a quoted table for its Census, with an empty name.
func CensusSQL(quoted string) string {
	return "SELECT CONCAT_WS(' ', COUNT(*), COALESCE(MIN(slot), 0), COALESCE(MAX(slot), 0), " +
		"COALESCE(MIN(slots), 0), COALESCE(MAX(slots), 0), '') FROM " + quoted
}

// LastSQL asks a quoted table for its Census by the last row alone, and for its name. A lock is to
// follow, which needs one row: that must be there, and state the same number of slots.
func LastSQL(quoted, name string) string {
	return "SELECT CONCAT_WS(' ', slot + 1, 0, slot, slots, slots, " + name + ") FROM " + quoted +
		" ORDER BY slot DESC LIMIT 1"
}

// Slots is that of the Census which is the answer to either of them, with the name that LastSQL
// asks for. An empty table may give no row.
func Slots(table string, answer []string, asked int) (slots int, name string, err error) {
	var c Census
	if len(answer) > 0 {
		_, err = fmt.Sscan(answer[0], &c.Rows, &c.MinSlot, &c.MaxSlot, &c.MinSlots, &c.MaxSlots)
		fields := strings.SplitN(answer[0], " ", 6)
		if err != nil || len(fields) < 6 {
			return 0, "", NotInstalled(table, cmp.Or(err, errors.New("it does not say its name")))
		}
		name = fields[5]
	}
	slots, err = c.Slots(table, asked)
	return slots, name, err
}

// Census is what a lock table says of itself.
type Census struct {
	Rows, MinSlot, MaxSlot int
	MinSlots, MaxSlots     int
}

// Slots is the number of slots of a complete table, or that which an Install for asked slots (0:
// any) gives the table, with an error that says what is missing. It is 0 where no Install helps.
// Every row carries the number, so that missing rows show, as far as the Census looks.
func (c Census) Slots(table string, asked int) (int, error) {
	switch {
	case c.Rows == 0:
		return cmp.Or(asked, dialects.DefaultSlots), notInstalled(table, "is empty")
	case c.MinSlots != c.MaxSlots:
		return 0, fmt.Errorf("%w: table %.100s has rows that were seeded for different numbers of slots, %d and %d",
			dialects.ErrNotInstalled, table, c.MinSlots, c.MaxSlots)
	case asked != 0 && asked != c.MaxSlots:
		return 0, fmt.Errorf("table %.100s is installed with %d slots, not %d: clients that disagree on that number "+
			"do not exclude each other; to change it, stop all clients, drop the table and install it anew", table,
			c.MaxSlots, asked)
	case c.Rows != c.MaxSlots || c.MinSlot != 0 || c.MaxSlot != c.Rows-1:
		return c.MaxSlots, notInstalled(table, "has %d of %d slots", c.Rows, c.MaxSlots)
	}
	return c.Rows, nil
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
	exists := make(map[string]bool, len(existing))
	for _, text := range existing {
		exists[text] = true
	}
	if len(exists) >= len(r.Values) {
		if r.Try {
			return fmt.Errorf("%w: another session holds it", dialects.ErrNotAcquired)
		}
		return fmt.Errorf("%w: a row of %.100s changed or came while it was being locked", dialects.ErrNoRow, r.Table)
	}
	for _, value := range r.Values {
		switch {
		case exists[value.Text]:
		case r.Slots > 0:
			return NoSlot(r.Table, value.Text, r.Slots)
		default:
			return fmt.Errorf("%w: table %.100s has no row where %.100s is %.100q, or it is a row named twice",
				dialects.ErrNoRow, r.Table, r.Column, value.Text)
		}
	}
	return fmt.Errorf("%w: table %.100s", dialects.ErrNoRow, r.Table)
}
