package mysql

import (
	"context"
	"database/sql"

	"github.com/txlock/txlock/dialects"
)

// Inspect implements dialects.Inspector.
func (d *Driver) Inspect(ctx context.Context, of dialects.Inspection) (states []dialects.RowState, err error) {
	err = d.from().With(ctx, func(conn *sql.Conn) (err error) {
		states, err = d.inspector.Inspect(ctx, conn, of)
		return err
	})
	return states, err
}

// End implements dialects.Inspector.
func (d *Driver) End(ctx context.Context, party dialects.Party) error {
	return d.from().With(ctx, func(conn *sql.Conn) error { return d.inspector.End(ctx, conn, party) })
}
