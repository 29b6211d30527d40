package postgres

import (
	"context"
	"fmt"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/inspection"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
)

// Inspect implements dialects.Inspector.
func (d *driver[Tx]) Inspect(ctx context.Context, of dialects.Inspection) (states []dialects.RowState, err error) {
	table, err := inspection.TableOf(of)
	if err != nil {
		return nil, err
	}
	err = d.withConn(ctx, func(q querier) error {
		states, err = inspection.Look(ctx, q.Run, table, of)
		return classify(err, dialects.Request{Table: table, Ours: true})
	})
	return states, err
}

// End implements dialects.Inspector.
func (d *driver[Tx]) End(ctx context.Context, party dialects.Party) error {
	return d.withConn(ctx, func(q querier) error {
		err := inspection.End(ctx, q.Run, party)
		if server.State(err) == server.NoPrivilege {
			err = fmt.Errorf("only the session's own role, and members of pg_signal_backend, may end it (GRANT "+
				"pg_signal_backend TO …): %w", err)
		}
		return err
	})
}
