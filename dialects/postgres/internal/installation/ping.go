package installation

import (
	"context"
	"fmt"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Ping does what dialects.Driver promises. A default of read only is no obstacle: a lock's
// transaction says READ WRITE.
func Ping(ctx context.Context, with client.With, table string) error {
	quoted, err := sqltext.QuoteTable(table)
	if err != nil {
		return err
	}
	return with(ctx, func(q client.Querier) error {
		columns, err := q.Run(ctx, sqltext.Script{
			{SQL: "select pg_is_in_recovery() from " + quoted + " where slots > 0 limit 1"},
		})
		switch {
		case err != nil:
			return server.Ours(err, table)
		case len(columns[0]) == 0:
			_, err = locktable.Census{}.Seeded(table)
		case server.IsTrue(columns[0][0]):
			err = fmt.Errorf("%w: the server is a standby, and takes no writes", dialects.ErrUnsafeEngine)
		}
		return err
	})
}
