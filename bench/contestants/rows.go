package contestants

import (
	"context"
	"fmt"
	"strings"

	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
)

// The user's own table, with a row for each key.
const (
	rowsTable  = "bench_rows"
	rowsColumn = "name"
)

func seedRows(ctx context.Context, server contest.Server, env contest.Environment, keys []string) error {
	quoted := make([]string, len(keys))
	for i, key := range keys {
		quoted[i] = "'" + strings.ReplaceAll(key, "'", "''") + "'"
	}
	return seed(ctx, server, env, rowsTable, rowsColumn+" VARCHAR(100) PRIMARY KEY, version BIGINT NOT NULL", quoted,
		"(%s, 0)")
}

// seed creates a new table with a row for each of values, which are SQL.
func seed(ctx context.Context, server contest.Server, env contest.Environment, table, columns string, values []string,
	row string,
) error {
	db, err := pools.SQL(ctx, server, env.Address(), 1)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS "+table); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE "+table+" ("+columns+")"); err != nil {
		return err
	}
	const atATime = 10_000
	for len(values) > 0 {
		some := values[:min(atATime, len(values))]
		values = values[len(some):]
		rows := make([]string, len(some))
		for i, value := range some {
			rows[i] = fmt.Sprintf(row, value)
		}
		if _, err := db.ExecContext(ctx, "INSERT INTO "+table+" VALUES "+strings.Join(rows, ", ")); err != nil {
			return fmt.Errorf("seed %s: %w", table, err)
		}
	}
	return nil
}
