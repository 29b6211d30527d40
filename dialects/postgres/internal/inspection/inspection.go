// Package inspection makes pictures of who holds and who waits, from what the server's views show,
// and ends sessions that they have shown.
package inspection

import (
	"cmp"
	"context"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Inspector does what dialects.Inspector promises.
type Inspector struct{ with client.With }

// New returns an Inspector, and sends nothing.
func New(with client.With) Inspector { return Inspector{with} }

// run sends a script on a connection, and returns the first column of each statement's rows.
type run func(ctx context.Context, s sqltext.Script) (columns [][]string, err error)

// Inspect does what dialects.Inspector promises.
func (i Inspector) Inspect(ctx context.Context, of dialects.Inspection) (states []dialects.RowState, err error) {
	table := of.Table.Name
	beside, err := sqltext.Beside(table)
	switch of.Kind {
	case dialects.KindSemaphore:
		table = beside(locktable.Permits)
	case dialects.KindElection:
		table = beside(locktable.Leaders)
	}
	quoted, failed := sqltext.QuoteTable(table)
	if err = cmp.Or(err, failed); err != nil {
		return nil, err
	}
	err = i.with(ctx, func(q client.Line) error {
		states, err = look(ctx, q.Run, table, quoted, of)
		return server.Ours(err, table)
	})
	return states, err
}

// look shows what is held or awaited by a table: all slots, whichever are asked for. It looks again
// when a lock was renewed meanwhile.
func look(ctx context.Context, run run, table, quoted string, of dialects.Inspection) (
	states []dialects.RowState, err error,
) {
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
