// Package records keeps the rows beside the lock table: what is claimed, and which permits there
// are. It locks none of them for longer than a statement or a batch takes.
package records

import (
	"context"
	"strconv"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/claims"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// Keeper keeps them. Its methods do what dialects.Keeper promises.
type Keeper struct{ pool *client.Pool }

// New returns a Keeper, and sends nothing.
func New(pool *client.Pool) Keeper { return Keeper{pool} }

// readNow runs a query as ReadNow of a connection does.
func (k Keeper) readNow(ctx context.Context, table, query string) (answer []string, err error) {
	conn, err := k.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if answer, err = conn.ReadNow(ctx, query); err != nil {
		server.Destroy(conn.Conn) // with whatever was open on it
	}
	return answer, server.Ours(err, table)
}

// Record does what dialects.Session promises.
func Record(ctx context.Context, to client.Link, request dialects.Request) (state dialects.ClaimState, err error) {
	write, read, err := ClaimSQL(request.Table, *request.Claim, strconv.FormatInt(request.Claim.Token, 10), "")
	if err != nil {
		return state, err
	}
	clean, cancel := interrupt.Detached(ctx) // the connection is closed when ctx ends
	defer cancel()
	answer, err := to.Ask(clean, write, read)
	switch {
	case server.Broken(err):
		return state, server.Lost(err)
	case err != nil:
		return state, server.Ours(err, request.Table)
	}
	return claims.Changed(answer, *request.Claim)
}
