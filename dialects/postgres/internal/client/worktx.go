package client

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// workTx is the transaction as work sees it. When work commits it, that is a COMMIT without the
// proof, and the handle is closed.
type workTx struct{ handle }

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

// handle is pgx's own of a transaction, or of a nested one, that was begun without pgx. It refuses
// to send once the transaction has ended, by a COMMIT that work has sent as text, say. The
// statement would be committed at once, without the lock, and behind a pooler in the session of
// another client.
type handle struct {
	pgx.Tx
	begin pgx.BatchResults
}

// handleOf takes the handle of a batch that would begin a transaction, and has nothing to send.
// Commit is what its Commit sends.
func handleOf(conn *pgx.Conn, commit string) handle {
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{CommitQuery: commit})
	batch.QueuedQueries = nil
	begin := conn.SendBatch(context.Background(), &batch)
	return handle{begin.Tx(), begin}
}

// open closes the handle of a transaction that has ended, as pgx does for a batch that has begun
// none.
func (t handle) open() pgx.Tx {
	if Status(t.Conn().PgConn().TxStatus()) == Idle {
		_ = t.begin.Close()
	}
	return t.Tx
}

// Begin implements pgx.Tx.
func (t handle) Begin(ctx context.Context) (pgx.Tx, error) {
	nested, err := t.open().Begin(ctx)
	if err != nil {
		return nil, err
	}
	return handle{nested, t.begin}, nil
}

// Exec implements pgx.Tx.
func (t handle) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	return t.open().Exec(ctx, query, args...)
}

// Query implements pgx.Tx.
func (t handle) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	return t.open().Query(ctx, query, args...)
}

// QueryRow implements pgx.Tx.
func (t handle) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	return t.open().QueryRow(ctx, query, args...)
}

// SendBatch implements pgx.Tx.
func (t handle) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	return t.open().SendBatch(ctx, batch)
}

// CopyFrom implements pgx.Tx.
func (t handle) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (
	int64, error,
) {
	return t.open().CopyFrom(ctx, table, columns, rows)
}
