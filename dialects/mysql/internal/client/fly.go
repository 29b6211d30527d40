package client

import (
	"context"
	"database/sql/driver"
	"errors"
	"unicode/utf8"

	"github.com/go-sql-driver/mysql"
)

// longestFlight is far below what servers take in one query, by default (max_allowed_packet).
const longestFlight = 1 << 20

// Prepares tells whether arguments of the work are sent to a prepared statement.
func (c Conn) Prepares() bool { return c.Owned != nil && !c.Owned.puts }

// Fly runs several statements in one query, and returns how many rows each has affected. The driver
// puts args into the text. Where it does not, or cannot, the error is driver.ErrSkip, and nothing
// was sent.
//
// Where the work's statements are prepared, args mean what they mean to a prepared statement, or
// are not sent: its text in bytes has the character set of the connection, and its floats are no
// decimals.
func (c Conn) Fly(ctx context.Context, query string, args []any) (affected []int64, err error) {
	failed := c.Raw(func(pooled any) error {
		conn, ok := pooled.(pooledConn)
		if c.Owned != nil { // past its watch
			conn = c.Owned.pooledConn
		}
		if !ok {
			err = driver.ErrSkip
			return nil
		}
		prepares := c.Prepares()
		size := len(query)
		values := make([]driver.NamedValue, len(args))
		for i, arg := range args {
			values[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
			if conn.CheckNamedValue(&values[i]) != nil {
				err = driver.ErrSkip
				return nil
			}
			switch value := values[i].Value.(type) {
			case string:
				size += 2 * len(value)
			case []byte:
				size += 2 * len(value)
				if prepares && utf8.Valid(value) && value != nil {
					values[i].Value = string(value)
				}
			case float32, float64:
				if prepares {
					err = driver.ErrSkip
					return nil
				}
			}
		}
		if size > longestFlight {
			err = driver.ErrSkip
			return nil
		}
		var result driver.Result
		if result, err = conn.ExecContext(ctx, query, values); err == nil {
			affected = result.(mysql.Result).AllRowsAffected()
		}
		if errors.Is(err, mysql.ErrPktTooLarge) { // it was not sent
			err = driver.ErrSkip
		}
		return nil // not err: database/sql would try again on what looks like a bad connection
	})
	if failed != nil {
		err = failed
	}
	return affected, err
}
