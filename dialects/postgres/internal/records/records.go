// Package records keeps the rows beside the lock table: who leads, and which permits there
// are. It locks none of them for longer than a statement or a batch takes.
package records

import (
	"context"
	"fmt"
	"strconv"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Keeper keeps them. Its methods do what dialects.Keeper promises.
type Keeper struct{ with client.With }

// New returns a Keeper, and sends nothing.
func New(with client.With) Keeper { return Keeper{with} }

// run sends a script that ends the transaction which it begins, and has none left open by an error.
func run(ctx context.Context, q client.Line, table string, s ...sqltext.Statement) ([][]string, error) {
	columns, err := q.Run(ctx, s)
	if err != nil {
		q.Abandon(ctx)
	}
	return columns, server.Ours(err, table)
}

// kinds are the tables of what has a name, the column in which the rows of a name differ, and what
// the first $2 of them have there, in order.
var kinds = map[dialects.Kind]struct{ table, column, parts string }{
	dialects.KindElection: {locktable.Leaders, "part", "unnest((array['seat', 'record', 'office'])[:$2::int])"},
}

// Rows does what dialects.Keeper promises.
func (k Keeper) Rows(ctx context.Context, table string, of dialects.Named, n int, create bool) (
	found dialects.Rows, err error,
) {
	beside, err := sqltext.Beside(table)
	if err != nil {
		return found, err
	}
	kind, count := kinds[of.Kind], strconv.Itoa(n)
	table = beside(kind.table)
	parts := kind.parts + " with ordinality parts (part, place)"
	own := "own.hash = $1 and own." + kind.column + " = parts.part"
	find := sqltext.With("select id::text from "+parts+" join "+table+" own on "+own+" order by place", of.Hash, count)
	insert := func(id, first string) sqltext.Script {
		return sqltext.Script{
			client.Begin,
			sqltext.Silent("insert into "+table+" ("+id+"hash, name, "+kind.column+") "+first+"$1, nullif($3, ''), "+
				"parts.part from "+parts+" where not exists (select from "+table+" own where "+own+") order by place "+
				"on conflict do nothing", of.Hash, count, of.Name),
			client.Commit,
			find,
		}
	}
	attempts := []sqltext.Script{{find}}
	if create {
		// A logical replica has the rows of its publisher, but not how far their numbers were
		// drawn.
		attempts = append(attempts, insert("", "select "), insert("id, ", "overriding system value select "+
			"(select max(id) from "+table+") + row_number() over (order by place), "))
	}
	err = k.with(ctx, func(q client.Line) error {
		for _, attempt := range attempts {
			columns, err := run(ctx, q, table, attempt...)
			if err != nil {
				return err
			}
			if numbers := columns[len(columns)-1]; len(numbers) == n {
				found = dialects.Rows{Hash: of.Hash, Table: table, Numbers: numbers}
				return nil
			}
		}
		if !create {
			return nil
		}
		return fmt.Errorf("%w: the rows of %s in %s went as they came", dialects.ErrNoRow, of.Hash, table)
	})
	return found, err
}
