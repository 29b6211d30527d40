package contestants

import (
	"context"
	"fmt"
	"time"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	byHand{
		Contestant: contest.Contestant{
			Name: "upsert in a transaction", Waits: contest.Queued,
			Remark: "the lock is that of the row, until the commit",
		},
		tables: []table{{name: "bench_upsert", columns: "name VARCHAR(255) PRIMARY KEY, locked_at {moment} NOT NULL"}},
		client: func(db database, _ time.Duration, write func(string) string) contest.Client {
			return transactionLock[string]{
				database: db,
				statement: write("INSERT INTO bench_upsert (name, locked_at) VALUES (?, {now}) {else} locked_at = " +
					"{now}"),
				parameter: func(key string) string { return key },
			}
		},
	}.register()
}

// transactionLock is a statement that locks a key, or waits for it. The lock lasts until the end of
// the transaction in which it runs.
type transactionLock[P any] struct {
	database
	statement string
	parameter func(key string) P
}

// Hold implements contest.Client.
func (c transactionLock[P]) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return transactAgain(ctx, c, func(tx transaction) error {
		for _, key := range keys {
			if _, err := tx.exec(ctx, c.statement, c.parameter(key)); err != nil {
				return fmt.Errorf("lock %q: %w", key, err)
			}
		}
		return work(ctx, tx.Tx())
	})
}
