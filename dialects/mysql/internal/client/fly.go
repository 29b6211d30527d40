package client

import (
	"cmp"
	"context"
	"database/sql/driver"

	"github.com/go-sql-driver/mysql"
)

// Fly runs several statements in one query, and returns how many rows each has affected, which
// database/sql does not tell.
func (c Conn) Fly(ctx context.Context, query string) (affected []int64, err error) {
	failed := c.Raw(func(pooled any) error {
		var result driver.Result
		if result, err = pooled.(driver.ExecerContext).ExecContext(ctx, query, nil); err == nil {
			affected = result.(mysql.Result).AllRowsAffected()
		}
		return nil // not err: database/sql would try again on what looks like a bad connection
	})
	return affected, cmp.Or(failed, err)
}
