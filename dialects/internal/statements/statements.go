// Package statements runs the statements of a caller's in a transaction of database/sql, one by
// one.
package statements

import (
	"context"
	"database/sql"

	"github.com/txlock/txlock/dialects"
)

// Run runs them in order, up to the first that fails. A driver tells of a statement either its rows
// or how many it has affected. Counted, unless nil, is how many those are of one whose rows were
// asked for.
func Run(ctx context.Context, tx *sql.Tx, list []dialects.Statement,
	counted func(ctx context.Context, tx *sql.Tx, s dialects.Statement) (affected int64, err error),
) ([]int64, error) {
	affected := make([]int64, len(list))
	for i, statement := range list {
		var err error
		switch {
		case statement.Into != nil:
			affected[i], err = Query(ctx, tx, statement)
		case counted != nil:
			affected[i], err = counted(ctx, tx, statement)
		default:
			affected[i], err = Exec(ctx, tx, statement)
		}
		if err == nil {
			err = statement.Judge(affected[i])
		}
		if err != nil {
			return nil, &dialects.StatementError{Number: i + 1, Err: err}
		}
	}
	return affected, nil
}

// Exec is how many rows a statement has affected, as the driver tells.
func Exec(ctx context.Context, tx *sql.Tx, s dialects.Statement) (int64, error) {
	result, err := tx.ExecContext(ctx, s.SQL, s.Args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Query is how many rows a statement has returned. The first goes where it is asked for.
func Query(ctx context.Context, tx *sql.Tx, s dialects.Statement) (count int64, err error) {
	rows, err := tx.QueryContext(ctx, s.SQL, s.Args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for ; rows.Next(); count++ {
		if count == 0 && s.Into != nil {
			if err := rows.Scan(s.Into...); err != nil {
				return 0, err
			}
		}
	}
	return count, rows.Err()
}
