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
	permits, count := beside(locktable.Permits), strconv.Itoa(n)
	find := sqltext.With("select id::text from "+permits+" where hash = $1 and permit < $2::int order by permit",
		semaphore.Hash, count)
	missing := sqltext.With("nullif($3, ''), permit from generate_series(0, $2::int - 1) permit where not exists "+
		"(select from "+permits+" own where own.hash = $1 and own.permit = permit.permit) order by permit "+
		"on conflict do nothing",
		semaphore.Hash, count, semaphore.Name)
	p = dialects.Permits{Semaphore: semaphore.Hash, Table: permits}
	err = complete(ctx, with, permits, "permit", find, missing, func(found []string) (bool, error) {
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
