// Package inspection makes pictures of who holds and who waits, from what the server's views show,
// and ends sessions that they have shown.
package inspection

import (
	"context"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// Run sends a script on a connection, and returns the first column of each statement's rows.
type Run func(ctx context.Context, s sqltext.Script) (columns [][]string, err error)

// TableOf is the table that an inspection reads.
func TableOf(of dialects.Inspection) (string, error) {
	switch of.Kind {
	case dialects.KindSemaphore:
		return sqltext.PermitsOf(of.Table.Name)
	case dialects.KindElection:
		return sqltext.LeadersOf(of.Table.Name)
	}
	return of.Table.Name, nil
}

// Look shows what is held or awaited, by the table that is TableOf.
func Look(ctx context.Context, run Run, table string, of dialects.Inspection) ([]dialects.RowState, error) {
	switch of.Kind {
	case dialects.KindSemaphore:
		return run.permits(ctx, of.Table.Name, table, of.Names)
	case dialects.KindElection:
		return run.elections(ctx, table, of.Names)
	}
	p, err := run.look(ctx, table)
	if err != nil {
		return nil, err
	}
	return p.queues(table, of.Slots), nil
}
