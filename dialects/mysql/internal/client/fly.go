package client

import (
	"context"
	"database/sql/driver"

	"github.com/go-sql-driver/mysql"
)

// Fly runs several statements in one query, and returns how many rows each has affected. The driver
// puts args into the text. Where it does not, or cannot, the error is driver.ErrSkip, and nothing
// was sent.
func (c Conn) Fly(ctx context.Context, query string, args []any) (affected []int64, err error) {
	failed := c.Raw(func(pooled any) error {
		conn, ok := pooled.(pooledConn)
		if c.Owned != nil { // past its watch
			conn = c.Owned.pooledConn
		}
		if !ok || c.Owned != nil && c.Owned.strange {
			err = driver.ErrSkip
			return nil
		}
		values := make([]driver.NamedValue, len(args))
		for i, arg := range args {
			values[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
			if conn.CheckNamedValue(&values[i]) != nil {
				err = driver.ErrSkip
				return nil
			}
		}
		var result driver.Result
		if result, err = conn.ExecContext(ctx, query, values); err == nil {
			affected = result.(mysql.Result).AllRowsAffected()
		}
		return nil // not err: database/sql would try again on what looks like a bad connection
	})
	if failed != nil {
		err = failed
	}
	return affected, err
}
