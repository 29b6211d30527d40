package client

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// workTx is the transaction as work sees it, which does not end it.
type workTx struct{ pgx.Tx }

var errNotYours = errors.New("the transaction is that of the lock: it commits when the work returns nil, and rolls " +
	"back when it returns an error")

// Commit implements pgx.Tx.
func (workTx) Commit(context.Context) error { return errNotYours }

// Rollback implements pgx.Tx.
func (workTx) Rollback(context.Context) error { return errNotYours }

// handleOf is pgx's own handle of a transaction that was begun with other statements: that of a
// batch that begins one, and has nothing to send. Its Close closes the handle once the transaction
// has ended, so that nobody who has kept it sends anything in the next one of the connection.
func handleOf(conn *pgx.Conn) pgx.BatchResults {
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{})
	batch.QueuedQueries = nil
	return conn.SendBatch(context.Background(), &batch)
}
