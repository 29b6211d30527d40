// Package records keeps the rows beside the lock table: what is claimed, and which permits there
// are. It locks none of them for longer than a statement or a batch takes.
package records

import (
	"context"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/claims"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// Keeper keeps them. Its methods do what dialects.Keeper promises.
type Keeper struct{ with client.With }

// New returns a Keeper, and sends nothing.
func New(with client.With) Keeper { return Keeper{with} }

// Record does what dialects.Session promises. With its context, pgx would close the connection when
// that ends.
func Record(ctx context.Context, q client.Line, request dialects.Request) (state dialects.ClaimState, err error) {
	script, err := ClaimScript(request.Table, *request.Claim, "", func(*sqltext.Statement) string { return "" })
	if err != nil {
		return state, err
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	columns, err := q.Run(clean, script)
	switch {
	case server.Broken(err):
		return state, dialects.Lost(err)
	case err != nil:
		return state, server.Ours(err, request.Table)
	}
	return claims.Changed(columns[len(columns)-1], *request.Claim)
}
