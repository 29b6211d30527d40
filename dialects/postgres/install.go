package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
)

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
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
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

func schemaText(layout dialects.Layout) (string, error) {
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

// check proves exclusion on two connections.
func check(ctx context.Context, table string, withLine func(context.Context, func(line) error) error) error {
	return withLine(ctx, func(holder line) error {
		slots, err := holder.slots(ctx, table)
		if err != nil {
			return err
		}
		quoted, err := quoteTable(table)
		if err != nil {
			return err
		}
		second, cancel := context.WithTimeout(ctx, cleanUpTimeout)
		defer cancel()
		return withLine(second, func(rival line) error {
			return dialects.Prove(second, slots, &probe{line: holder, table: quoted},
				&probe{line: rival, table: quoted})
		})
	})
}

type probe struct {
	line
	table string
	begun bool
}

func (p *probe) TryLock(ctx context.Context, slot int, clause string) (int, bool, error) {
	p.begun = true
	columns, err := p.run(ctx, script{
		{sql: beginSQL},
		{"select slot from " + p.table + " where slot = $1 for update " + clause, []any{strconv.Itoa(slot)}},
	})
	if sqlState(err) == lockNotAvailable {
		return 0, true, nil
	}
	if state := sqlState(err); err != nil && (state == "" || state == noPrivilege) {
		return 0, false, dialects.NoVerdict(err)
	}
	if err != nil {
		return 0, false, err
	}
	return len(columns[1]), false, nil
}

func (p *probe) Rollback(ctx context.Context) error {
	if !p.begun {
		return nil
	}
	p.begun = false
	_, err := p.run(ctx, script{{sql: "rollback"}})
	return err
}
