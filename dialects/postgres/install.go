package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/locktable"
)

// Slots implements dialects.Driver.
func (d *driver[Tx]) Slots(ctx context.Context, table string) (slots int, err error) {
	err = d.withLine(ctx, func(l line) (err error) {
		slots, err = l.slots(ctx, table)
		return err
	})
	return slots, err
}

// Install implements dialects.Driver.
func (d *driver[Tx]) Install(ctx context.Context, layout dialects.Layout) (installed int, err error) {
	err = d.withLine(ctx, func(l line) (err error) {
		installed, err = l.install(ctx, layout)
		return err
	})
	return installed, err
}

// Schema implements dialects.Driver.
func (d *driver[Tx]) Schema(layout dialects.Layout) (string, error) {
	quoted, err := quoteTable(layout.Table)
	if err != nil {
		return "", err
	}
	create, seed := schema(quoted, layout.Slots)
	statements := []string{create, seed}
	if layout.Fencing {
		f, err := fenceOf(layout.Table)
		if err != nil {
			return "", err
		}
		statements = append(statements, f.schema()...)
	}
	return strings.Join(statements, ";\n\n") + ";\n", nil
}

func (l line) slots(ctx context.Context, table string) (int, error) {
	census, err := l.census(ctx, table)
	if err != nil {
		return 0, err
	}
	return census.Seeded(table)
}

// install creates and seeds the table in one transaction: a crash leaves all of it or nothing. An
// advisory lock keeps other replicas out, for CREATE TABLE IF NOT EXISTS alone fails when two run
// it at once.
func (l line) install(ctx context.Context, layout dialects.Layout) (int, error) {
	quoted, err := quoteTable(layout.Table)
	if err != nil {
		return 0, err
	}
	var fencing []string
	if layout.Fencing {
		f, err := fenceOf(layout.Table)
		if err != nil {
			return 0, err
		}
		fencing = f.schema()
	}
	turn := fnv.New64a()
	turn.Write([]byte("txlock install\x00" + quoted))
	if _, err := l.run(ctx, script{
		{sql: beginSQL},
		{"select pg_advisory_xact_lock($1)", []any{strconv.FormatInt(int64(turn.Sum64()), 10)}},
	}); err != nil {
		l.abandon(ctx)
		return 0, err
	}
	wanted, err := l.seed(ctx, layout.Table, quoted, layout.Slots)
	for _, create := range fencing {
		if err == nil {
			_, err = l.run(ctx, script{{sql: create}})
		}
	}
	if err != nil {
		l.abandon(ctx)
		return 0, err
	}
	clean, cancel := detached(ctx)
	defer cancel()
	_, err = l.run(clean, script{{sql: "commit"}})
	return wanted, err
}

func (l line) seed(ctx context.Context, table, quoted string, slots int) (int, error) {
	create, _ := schema(quoted, slots)
	exists, err := l.run(ctx, script{{"select to_regclass($1) is not null", []any{quoted}}})
	if err != nil {
		return 0, err
	}
	if !isTrue(exists[0][0]) {
		if _, err := l.run(ctx, script{{sql: create}}); err != nil {
			return 0, fmt.Errorf("create table: %w", err)
		}
	}
	census, err := l.census(ctx, table)
	if err != nil {
		return 0, err
	}
	wanted, err := census.Wanted(table, slots)
	if err != nil {
		return 0, err
	}
	if _, err := census.Seeded(table); err == nil {
		return wanted, nil
	}
	_, seed := schema(quoted, wanted)
	if _, err := l.run(ctx, script{{sql: seed}}); err != nil {
		return 0, fmt.Errorf("seed table: %w", err)
	}
	return l.slots(ctx, table)
}

// schema is the SQL text that creates and seeds a lock table. The primary key is unnamed: the
// server finds a free name. Every row carries the number of slots: rows that are missing show, and
// a client that has an old number finds no row to lock instead of the wrong one. slots is 0 when
// the statements are for a table that has its number already.
func schema(table string, slots int) (create, seed string) {
	create = "CREATE TABLE IF NOT EXISTS " + table + " (\n" +
		"    slot integer NOT NULL PRIMARY KEY,\n" +
		"    slots integer NOT NULL,\n" +
		"    CHECK (slot >= 0 AND slot < slots)\n)"
	n := strconv.Itoa(slots)
	seed = "INSERT INTO " + table + " (slot, slots)\nSELECT slot, " + n + " FROM generate_series(0, " + n +
		" - 1) AS slot\n" +
		"ON CONFLICT DO NOTHING"
	return create, seed
}

// census reads what a lock table says of itself.
func (l line) census(ctx context.Context, table string) (locktable.Census, error) {
	quoted, err := quoteTable(table)
	if err != nil {
		return locktable.Census{}, err
	}
	columns, err := l.run(ctx, script{{sql: "select concat_ws(' ', count(*), " +
		"coalesce(min(slot), 0), coalesce(max(slot), 0), coalesce(min(slots), 0), coalesce(max(slots), 0)) from " + quoted}})
	if err != nil {
		return locktable.Census{}, classify(err, dialects.Request{Table: table, Slots: 1})
	}
	var c locktable.Census
	_, err = fmt.Sscan(strings.Join(columns[0], ""), &c.Rows, &c.MinSlot, &c.MaxSlot, &c.MinSlots, &c.MaxSlots)
	if err != nil {
		return c, locktable.NotInstalled(table, err)
	}
	return c, nil
}
