// Package records keeps the rows beside the lock table: who leads, what was done, and which permits
// there are. It locks none of them for longer than a statement or a batch takes.
package records

import (
	"context"
	"fmt"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// run sends a script that ends the transaction which it begins, and has none left open by an error.
func run(ctx context.Context, q client.Querier, table string, s ...sqltext.Statement) ([][]string, error) {
	columns, err := q.Run(ctx, s)
	if err != nil {
		q.Abandon(ctx)
	}
	return columns, server.Ours(err, table)
}

// group is the rows of one election or semaphore.
type group struct {
	table, what string
	find        sqltext.Statement
	// Missing is a query for those that are missing, but for the hash in front. They differ in
	// column, and are numbered in an order.
	column, missing, order string
	args                   []string // the hash, and those of missing
}

// complete has rows inserted, until look is content with what is found.
func (g group) complete(ctx context.Context, with client.With, look func(found []string) (bool, error)) error {
	into := g.column + ") "
	add := sqltext.Silent("insert into "+g.table+" (hash, name, "+into+"select $1, "+g.missing, g.args...)
	// A logical replica has the rows of its publisher, but not how far their numbers were drawn.
	number := sqltext.Silent("insert into "+g.table+" (id, hash, name, "+into+"overriding system value select "+
		"(select max(id) from "+g.table+") + row_number() over ("+g.order+"), $1, "+g.missing, g.args...)
	return with(ctx, func(q client.Querier) error {
		for _, attempt := range []sqltext.Script{
			{g.find}, {client.Begin, add, client.Commit, g.find}, {client.Begin, number, client.Commit, g.find},
		} {
			columns, err := run(ctx, q, g.table, attempt...)
			if err != nil {
				return err
			}
			if content, err := look(columns[len(columns)-1]); content || err != nil {
				return err
			}
		}
		return fmt.Errorf("%w: %s went as they came", dialects.ErrNoRow, g.what)
	})
}
