package client

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// workTx is the transaction as work sees it. When work commits it, that is a COMMIT without the
// proof, and the handle is closed.
type workTx struct{ openTx }

// Commit implements pgx.Tx.
func (t workTx) Commit(ctx context.Context) error {
	tag, err := t.Exec(ctx, "commit")
	if err != nil {
		return err
	}
	if tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return errors.Join(err, t.Rollback(ctx)) // there is nothing to roll back: it closes the handle
}

// openTx refuses to send once the transaction has ended, by a COMMIT that work has sent as text,
// say. The statement would be committed at once, without the lock, and behind a pooler in the
// session of another client.
type openTx struct{ pgx.Tx }

// open closes the handle of a transaction that has ended: by a Commit that sends nothing, because
// its context has ended.
func (t openTx) open() pgx.Tx {
	if Status(t.Conn().PgConn().TxStatus()) == Idle {
		_ = t.Tx.Commit(over)
	}
	return t.Tx
}

// Begin implements pgx.Tx.
func (t openTx) Begin(ctx context.Context) (pgx.Tx, error) {
	nested, err := t.open().Begin(ctx)
	if err != nil {
		return nil, err
	}
	return openTx{nested}, nil
}

// Exec implements pgx.Tx.
func (t openTx) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	return t.open().Exec(ctx, query, args...)
}

// Query implements pgx.Tx.
func (t openTx) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	return t.open().Query(ctx, query, args...)
}

// QueryRow implements pgx.Tx.
func (t openTx) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	return t.open().QueryRow(ctx, query, args...)
}

// SendBatch implements pgx.Tx.
func (t openTx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	return t.open().SendBatch(ctx, batch)
}

// CopyFrom implements pgx.Tx.
func (t openTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (
	int64, error,
) {
	return t.open().CopyFrom(ctx, table, columns, rows)
}
