package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/txlock/txlock/dialects"
)

func (l line) slots(ctx context.Context, table string) (int, error) {
	census, err := l.census(ctx, table)
	if err != nil {
		return 0, err
	}
	return census.Seeded(table)
}

// install creates and seeds the table in one transaction: a crash leaves all of it or nothing. An advisory lock keeps
// other replicas out, for CREATE TABLE IF NOT EXISTS alone fails when two run it at once.
func (l line) install(ctx context.Context, table string, slots int) (int, error) {
	quoted, err := quoteTable(table)
	if err != nil {
		return 0, err
	}
	turn := fnv.New64a()
	turn.Write([]byte("txlock install\x00" + quoted))
	if _, err := l.run(ctx, script{
		{sql: beginSQL},
		{"select pg_advisory_xact_lock($1)", []any{strconv.FormatInt(int64(turn.Sum64()), 10)}},
	}); err != nil {
		return 0, err
	}
	wanted, err := l.seed(ctx, table, quoted, slots)
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	if err != nil {
		_, _ = l.run(clean, script{{sql: "rollback"}}) // else the connection is closed when it goes back
		return 0, err
	}
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

func schemaText(table string, slots int) (string, error) {
	quoted, err := quoteTable(table)
	if err != nil {
		return "", err
	}
	create, seed := schema(quoted, slots)
	return create + ";\n\n" + seed + ";\n", nil
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
			return dialects.Prove(second, slots, &probe{line: holder, table: quoted}, &probe{line: rival, table: quoted})
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
