package client

import (
	"cmp"
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
	var conn pooledConn
	err = c.Raw(func(pooled any) error {
		conn, _ = pooled.(pooledConn)
		return nil
	})
	if err != nil {
		return nil, err
	}
	// Outside of Raw, which closes the connection when an argument panics, and waits for its
	// transaction.
	values, err := c.valuesOf(conn, len(query), args)
	if err != nil {
		return nil, err
	}
	failed := c.Raw(func(any) error {
		var result driver.Result
		if result, err = conn.ExecContext(ctx, query, values); err == nil {
			affected = result.(mysql.Result).AllRowsAffected()
		}
		return nil // not err: database/sql would try again on what looks like a bad connection
	})
	if errors.Is(err, mysql.ErrPktTooLarge) { // it was not sent
		err = driver.ErrSkip
	}
	return affected, cmp.Or(failed, err)
}

// valuesOf are arguments as the driver puts them into a text of that size.
func (c Conn) valuesOf(conn pooledConn, size int, args []any) ([]driver.NamedValue, error) {
	if conn == nil {
		return nil, driver.ErrSkip
	}
	prepares := c.Prepares()
	values := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		values[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
		if conn.CheckNamedValue(&values[i]) != nil {
			return nil, driver.ErrSkip
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
				return nil, driver.ErrSkip
			}
		}
	}
	if size > longestFlight {
		return nil, driver.ErrSkip
	}
	return values, nil
}
