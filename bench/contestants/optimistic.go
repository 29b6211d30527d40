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
			Name: "version column", Waits: contest.Retrying,
			Remark: "optimistic, READ COMMITTED: work whose version is outdated at its end is rolled back",
		},
		tables: []table{{
			name:    "bench_version",
			columns: "name VARCHAR(255) PRIMARY KEY, version BIGINT NOT NULL DEFAULT 0",
			rows:    everyKey,
		}},
		client: func(db database, _ time.Duration, write func(string) string) contest.Client {
			return optimistic{
				database: db,
				read:     write("SELECT version FROM bench_version WHERE name = ?"),
				raise:    write("UPDATE bench_version SET version = version + 1 WHERE name = ? AND version = ?"),
			}
		},
	}.register()
}

// optimistic does not lock. It reads a version before the work, and commits only if nobody has
// raised the version since.
type optimistic struct {
	database
	read, raise string
}

// Hold implements contest.Client.
func (c optimistic) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return transactAgain(ctx, c, func(tx transaction) error {
		versions := make([]int64, len(keys))
		for i, key := range keys {
			if err := tx.one(ctx, []any{&versions[i]}, c.read, key); err != nil {
				return fmt.Errorf("read the version of %q: %w", key, err)
			}
		}
		if err := work(ctx, tx.Tx()); err != nil {
			return err
		}
		for i, key := range keys {
			raised, err := tx.exec(ctx, c.raise, key, versions[i])
			if err == nil && raised == 0 {
				err = errOvertaken
			}
			if err != nil {
				return fmt.Errorf("raise the version of %q: %w", key, err)
			}
		}
		return nil
	})
}
