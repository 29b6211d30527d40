package postgres

import (
	"context"
	"strconv"

	"github.com/txlock/txlock/dialects/internal/exclusion"
)

// Check implements dialects.Driver. It proves exclusion on two connections.
func (d *driver[Tx]) Check(ctx context.Context, table string) error {
	return d.withLine(ctx, func(holder line) error {
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
		return d.withLine(second, func(rival line) error {
			first := &probe{line: holder, table: quoted}
			return exclusion.Prove(second, slots, first, &probe{line: rival, table: quoted})
		})
	})
}

// probe is a connection of Check.
type probe struct {
	line
	table string
	begun bool
}

// TryLock implements exclusion.Probe.
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
		return 0, false, exclusion.NoVerdict(err)
	}
	if err != nil {
		return 0, false, err
	}
	return len(columns[1]), false, nil
}

// Rollback implements exclusion.Probe.
func (p *probe) Rollback(ctx context.Context) error {
	if !p.begun {
		return nil
	}
	p.begun = false
	_, err := p.run(ctx, script{{sql: "rollback"}})
	return err
}
