package records

import (
	"context"
	"strconv"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Permits does what dialects.Semaphores promises.
func Permits(ctx context.Context, with client.With, table string, semaphore dialects.Named, n int) (
	p dialects.Permits, err error,
) {
	beside, err := sqltext.Beside(table)
	if err != nil {
		return p, err
	}
	permits, args := beside(locktable.Permits), []string{semaphore.Hash, strconv.Itoa(n)}
	rows := group{
		table: permits, what: "the permits of semaphore " + semaphore.Hash,
		find: sqltext.With("select id::text from "+permits+" where hash = $1 and permit < $2::int order by permit",
			args...),
		column: "permit",
		missing: "nullif($3, ''), n from generate_series(0, $2::int - 1) n where not exists (select from " + permits +
			" where hash = $1 and permit = n) order by n on conflict do nothing",
		order: "order by n",
		args:  append(args, semaphore.Name),
	}
	p = dialects.Permits{Semaphore: semaphore.Hash, Table: permits}
	err = rows.complete(ctx, with, func(found []string) (bool, error) {
		if len(found) < n {
			return false, nil
		}
		for _, text := range found {
			row, err := strconv.Atoi(text)
			if err != nil {
				return false, err
			}
			p.Rows = append(p.Rows, row)
		}
		return true, nil
	})
	return p, err
}
