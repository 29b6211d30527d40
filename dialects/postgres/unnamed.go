package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// sendsPast tells whether statements may be sent past pgx: the caller has not chosen another way to
// execute queries, for a pooler in between, say, and has no tracer, which is to see them.
func sendsPast(conn *pgx.Conn) bool {
	config := conn.Config()
	return config.Tracer == nil && config.StatementCacheCapacity > 0 &&
		config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
}

// sendUnnamed runs a script in one round trip, and returns the first column of each statement's
// rows.
//
// What is sent inside a transaction must not fail for what a statement was when it was prepared: an
// error ends the transaction, so nothing can be sent anew. By default pgx keeps statements on the
// server, under names. The caller may have it forget them (DISCARD ALL), or give a column another
// type. So these statements are sent past pgx and have no name. In return the server parses them
// each time.
func sendUnnamed(ctx context.Context, conn *pgconn.PgConn, s script) (columns [][]string, err error) {
	var batch pgconn.Batch
	for _, statement := range s {
		batch.ExecParams(statement.sql, statement.texts(), nil, nil, nil)
	}
	results := conn.ExecBatch(ctx, &batch)
	for err == nil && results.NextResult() {
		var column []string
		rows := results.ResultReader()
		for rows.NextRow() {
			if values := rows.Values(); len(values) > 0 {
				column = append(column, string(values[0]))
			}
		}
		if _, err = rows.Close(); err == nil {
			columns = append(columns, column)
		}
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	if err == nil && len(columns) != len(s) {
		_ = conn.Close(over)
		err = fmt.Errorf("the server has answered %d of %d statements", len(columns), len(s))
	}
	return columns, err
}

// sendIn is sendUnnamed in a transaction of the caller's. Once that has ended, its connection is
// somebody else's.
func sendIn(ctx context.Context, tx pgx.Tx, s script) ([][]string, error) {
	if err := tx.SendBatch(ctx, &pgx.Batch{}).Close(); err != nil {
		return nil, err
	}
	return sendUnnamed(ctx, tx.Conn().PgConn(), s)
}
