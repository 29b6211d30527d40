package postgres

import (
	"context"
	"fmt"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Ping implements dialects.Driver. A default of read only is no obstacle: a lock's transaction says
// READ WRITE.
func (d *driver[Tx]) Ping(ctx context.Context, table string) error {
	quoted, err := sqltext.QuoteTable(table)
	if err != nil {
		return err
	}
	return d.withConn(ctx, func(q querier) error {
		columns, err := q.Run(ctx, sqltext.Script{
			{SQL: "select pg_is_in_recovery() from " + quoted + " where slots > 0 limit 1"},
		})
		switch {
		case err != nil:
			return classify(err, dialects.Request{Table: table, Slots: 1})
		case len(columns[0]) == 0:
			_, err = locktable.Census{}.Seeded(table)
		case isTrue(columns[0][0]):
			err = fmt.Errorf("%w: the server is a standby, and takes no writes", dialects.ErrUnsafeEngine)
		}
		return err
	})
}
