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

// complete has the rows of an election or a semaphore inserted, until look is content with what
// find has found. Missing is a query for those that are missing, but for the hash in front, which
// is the first argument of both. The rows differ in column.
func complete(ctx context.Context, with client.With, table, column string, find, missing sqltext.Statement,
	look func(found []string) (bool, error),
) error {
	insert := func(id, first string) sqltext.Script {
		text := "insert into " + table + " (" + id + "hash, name, " + column + ") " + first + "$1, " + missing.SQL
		return sqltext.Script{client.Begin, sqltext.Silent(text, missing.Args...), client.Commit, find}
	}
	return with(ctx, func(q client.Querier) error {
		for _, attempt := range []sqltext.Script{
			{find},
			insert("", "select "),
			// A logical replica has the rows of its publisher, but not how far their numbers were
			// drawn.
			insert("id, ", "overriding system value select (select max(id) from "+table+") + row_number() over (order "+
				"by "+column+"), "),
		} {
			columns, err := run(ctx, q, table, attempt...)
			if err != nil {
				return err
			}
			if content, err := look(columns[len(columns)-1]); content || err != nil {
				return err
			}
		}
		return fmt.Errorf("%w: the rows of %s in %s went as they came", dialects.ErrNoRow, find.Args[0], table)
	})
}
