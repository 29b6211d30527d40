// Package inspection makes pictures of who holds and who waits, from what the server's views show,
// and ends sessions that they have shown.
package inspection

import (
	"context"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Run sends a script on a connection, and returns the first column of each statement's rows.
type Run func(ctx context.Context, s sqltext.Script) (columns [][]string, err error)

// TableOf is the table that an inspection reads.
func TableOf(of dialects.Inspection) (string, error) {
	beside, err := sqltext.Beside(of.Table.Name)
	switch of.Kind {
	case dialects.KindSemaphore:
		return beside(locktable.Permits), err
	case dialects.KindElection:
		return beside(locktable.Leaders), err
	}
	return of.Table.Name, nil
}

// Look shows what is held or awaited, by the table that is TableOf: all slots, whichever are asked
// for. It looks again when a lock was renewed meanwhile.
func Look(ctx context.Context, run Run, table string, of dialects.Inspection) ([]dialects.RowState, error) {
	quoted, err := sqltext.QuoteTable(table)
	if err != nil {
		return nil, err
	}
	if of.Kind != dialects.KindRow {
		// An older version has not installed the table, or its roles were granted only what they
		// needed. That is asked for first, because the server would log an error.
		readable, err := run(ctx, sqltext.Script{{SQL: "select coalesce(has_table_privilege(to_regclass(" +
			sqltext.Literal(quoted) + "), 'select'), false)::text"}})
		if err != nil || readable[0][0] != "true" {
			return nil, err
		}
	}
	var p picture
	for tries, renewed := 0, true; renewed && tries < 3; tries++ {
		p = picture{}
		if of.Kind == dialects.KindRow {
			renewed, err = p.read(ctx, run, sqltext.Script{
				{SQL: heldSQL(quoted)}, {SQL: awaitedSQL(quoted)}, {SQL: turnstilesSQL(quoted)}, {SQL: rowWaitsSQL},
			}, &p.held, &p.awaited, &p.turnstiles, &p.rowWaits)
		} else {
			renewed, err = p.read(ctx, run, sqltext.Script{
				sqltext.With(besideSQL(of.Kind, quoted), sqltext.ArrayOf(of.Names)),
			}, &p.turnstiles)
		}
		if err != nil {
			return nil, err
		}
	}
	return p.states(of, table), nil
}
