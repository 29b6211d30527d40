package installation

import (
	"context"

	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// ExplainFence is missing, the server's error, unless the table that it did not find is one that
// tokens are drawn from.
func ExplainFence(ctx context.Context, q client.Line, table string, missing error) error {
	beside, err := sqltext.Beside(table)
	if err != nil {
		return err
	}
	epochs := beside(locktable.Epochs)
	columns, err := q.Run(ctx, sqltext.Script{sqltext.With("select (to_regclass($1) is null or to_regclass($2) is "+
		"null or to_regclass($3) is null or "+lacks(epochs, "server")+")::text", epochs, beside(locktable.Runs),
		beside(sqltext.Tokens))})
	if err != nil || columns[0][0] != "true" {
		return missing
	}
	return locktable.NoFence(table, server.Said(missing))
}
