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

const run = " (run Install, or the SQL of Schema)"

// NotInstalled adds to the server's error that the lock table is not what Install makes.
func NotInstalled(table string, err error) error {
	return notInstalled(run, table, "is missing or has another shape: %w", err)
}

// NoSlot says that the lock table lacks a slot of so many.
func NoSlot(table, slot string, slots int) error {
	return notInstalled(" (run Install to complete it)", table, "has no slot %s of %d", slot, slots)
}

// NoFence adds to the server's error that the tables which tokens are drawn from are missing.
func NoFence(table string, err error) error { return notInstalled(run, table, "has no fence: %w", err) }

// Older says that a table beside the lock table is one of version 0.1, which knows semaphores and
// elections by their names. Clients of both versions would not exclude each other, so nothing
// changes it while it may be in use.
func Older(table string) error {
	return notInstalled(" (stop what leads or takes permits, run DROP TABLE "+table+", and then Install)", table,
		"was made by version 0.1")
}

func notInstalled(advice, table, what string, args ...any) error {
	args = append([]any{dialects.ErrNotInstalled, table}, args...)
	return advised{fmt.Errorf("%w: table %.100s "+what, args...), advice}
}

// ManyWriters refuses a node of a cluster whose nodes all take writes.
func ManyWriters(reason string) error {
	return fmt.Errorf("%w: all nodes of its cluster take writes (%s), and row locks exclude the sessions of one node "+
		"only", dialects.ErrUnsafeEngine, reason)
}

// advised is an error with advice to a program.
type advised struct {
	error
	advice string
}

func (a advised) Error() string { return a.error.Error() + a.advice }

func (a advised) Unwrap() error { return a.error }

// WithoutAdvice is the text of err without its advice to programs: a user at a shell has no Install
// to call.
func WithoutAdvice(err error) string {
	var a advised
	if !errors.As(err, &a) {
		return err.Error()
	}
	return strings.Replace(err.Error(), a.Error(), a.error.Error(), 1)
}

// Census is what a lock table says of itself: by all of its rows or, where a lock is to follow that
// needs one of them alone, by the first and the last.
type Census struct {
	Rows, MinSlot, MaxSlot int
	MinSlots, MaxSlots     int
}

// CensusSQL asks a quoted table for its Census, with its name behind: by all rows or, at the edges,
// by the first and the last. An empty table may give no row.
func CensusSQL(quoted, name string, edges bool) string {
	if !edges {
		return "SELECT CONCAT_WS(' ', COUNT(*), COALESCE(MIN(slot), 0), COALESCE(MAX(slot), 0), " +
			"COALESCE(MIN(slots), 0), COALESCE(MAX(slots), 0), " + name + ") FROM " + quoted
	}
	edge := "(SELECT slot, slots FROM " + quoted + " ORDER BY slot"
	return "SELECT CONCAT_WS(' ', z.slot - a.slot + 1, a.slot, z.slot, LEAST(a.slots, z.slots), GREATEST(a.slots, " +
		"z.slots), " + name + ") FROM " + edge + " LIMIT 1) a CROSS JOIN " + edge + " DESC LIMIT 1) z"
}

// CensusOf reads the answer to CensusSQL.
func CensusOf(table string, answer []string) (c Census, name string, err error) {
	if len(answer) == 0 {
		return c, "", nil
	}
	_, err = fmt.Sscan(answer[0], &c.Rows, &c.MinSlot, &c.MaxSlot, &c.MinSlots, &c.MaxSlots)
	fields := strings.SplitN(answer[0], " ", 6)
	if err != nil || len(fields) < 6 {
		return c, "", NotInstalled(table, cmp.Or(err, errors.New("it does not say its name")))
	}
	return c, fields[5], nil
}

// Seeded is the number of slots of a complete table; any other table is an error. Every row carries
// that number, so that missing rows show, as far as the Census looks.
func (c Census) Seeded(table string) (int, error) {
	switch {
	case c.Rows == 0:
		return 0, notInstalled(" (run Install)", table, "is empty")
	case c.MinSlots != c.MaxSlots:
		return 0, c.mixed(table)
	case c.Rows != c.MaxSlots || c.MinSlot != 0 || c.MaxSlot != c.Rows-1:
		return 0, notInstalled(" (run Install to complete it)", table, "has %d of %d slots", c.Rows, c.MaxSlots)
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
	census, name, err := CensusOf(table, lines)
	if err == nil {
		found.Name = name
		found.Slots, err = census.Seeded(table)
	}
	if err == nil {
		found.Kinds, err = layout.Kinds(name)
	}
	return found, err
}

func (c Census) mixed(table string) error {
	return notInstalled("", table, "has rows that were seeded for different numbers of slots, %d and %d", c.MinSlots,
		c.MaxSlots)
}

// Wanted is the number of slots that the table has after an Install that asks for slots of them (0:
// any).
func (c Census) Wanted(table string, slots int) (int, error) {
	switch {
	case c.Rows == 0:
		return cmp.Or(slots, dialects.DefaultSlots), nil
	case c.MinSlots != c.MaxSlots:
		return 0, c.mixed(table)
	case slots != 0 && slots != c.MaxSlots:
		return 0, fmt.Errorf("table %.100s is installed with %d slots, not %d: clients that disagree on that number "+
			"do not exclude each other; to change it, stop all clients, drop the table and install it anew", table,
			c.MaxSlots, slots)
	}
	return c.MaxSlots, nil
}
