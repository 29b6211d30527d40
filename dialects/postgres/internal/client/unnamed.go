package client

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
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
//
// Safe is called when the first statement has run, while the server goes on with the next: a Flush
// has it answer. It may be nil.
func sendUnnamed(ctx context.Context, conn *pgconn.PgConn, s sqltext.Script, safe func()) ([][]string, error) {
	sent := make([]arguments, len(s))
	for i, statement := range s {
		sent[i].values = statement.Texts()
	}
	return sendWith(ctx, conn, s, sent, safe)
}

// arguments are those of a statement, as the protocol takes them.
type arguments struct {
	values  [][]byte
	types   []uint32 // nil: the server finds out
	formats []int16  // nil: text
	asked   bool     // the statement is not to run: the server tells types
}

func sendWith(ctx context.Context, conn *pgconn.PgConn, s sqltext.Script, sent []arguments, safe func()) (
	columns [][]string, err error,
) {
	pipeline := conn.StartPipeline(ctx)
	for i, statement := range s {
		if sent[i].asked {
			pipeline.SendPrepare("", statement.SQL, nil)
		} else {
			pipeline.SendQueryParams(statement.SQL, sent[i].values, sent[i].types, sent[i].formats, nil)
		}
		if i == 0 && safe != nil {
			pipeline.SendFlushRequest()
		}
	}
	err = pipeline.Sync()
	for err == nil && len(columns) < len(s) {
		var column []string
		if column, err = nextColumn(pipeline, &sent[len(columns)]); err == nil {
			columns = append(columns, column)
			if safe != nil {
				safe()
			}
		}
	}
	if closed := pipeline.Close(); err == nil {
		err = closed
	}
	if errors.Is(err, errUnanswered) {
		_ = conn.Close(over)
	}
	return columns, err
}

var errUnanswered = errors.New("the server has answered fewer statements than it was sent")

func nextColumn(pipeline *pgconn.Pipeline, sent *arguments) (column []string, err error) {
	results, err := pipeline.GetResults()
	if err != nil {
		return nil, err
	}
	if told, ok := results.(*pgconn.StatementDescription); ok {
		sent.types = told.ParamOIDs
		return nil, nil
	}
	rows, ok := results.(*pgconn.ResultReader)
	if !ok {
		return nil, errUnanswered
	}
	for rows.NextRow() {
		if values := rows.Values(); len(values) > 0 {
			column = append(column, string(values[0]))
		}
	}
	_, err = rows.Close()
	return column, err
}

// sendIn is sendUnnamed in a transaction of the caller's. Once that has ended, its connection is
// somebody else's.
func sendIn(ctx context.Context, tx pgx.Tx, s sqltext.Script, safe func()) ([][]string, error) {
	if err := tx.SendBatch(ctx, &pgx.Batch{}).Close(); err != nil {
		return nil, err
	}
	return sendUnnamed(ctx, tx.Conn().PgConn(), s, safe)
}
