package contestants

import (
	"context"
	"time"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	byHand{
		Contestant: contest.Contestant{
			Name: "unique key", Waits: contest.Polling,
			Remark: "never expires: the row of a dead holder stays until somebody deletes it",
		},
		tables: []table{{name: "bench_unique_key", columns: "name VARCHAR(255) PRIMARY KEY"}},
		client: func(db database, _ time.Duration, write func(string) string) contest.Client {
			return uniqueKey{
				database: db,
				insert:   write("{insert if new} bench_unique_key (name) VALUES (?) {if new}"),
				remove:   write("DELETE FROM bench_unique_key WHERE name = ?"),
			}
		},
	}.register()
}

// uniqueKey locks by inserting a row under a unique key, and unlocks by deleting it.
type uniqueKey struct {
	database
	insert, remove string
}

// Hold implements contest.Client.
func (c uniqueKey) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

func (c uniqueKey) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	err := poll(ctx, key, func(ctx context.Context) (bool, error) {
		inserted, err := c.exec(ctx, c.insert, key)
		return inserted == 1, err
	})
	return ctx, func() error {
		return unlock(ctx, key, func(ctx context.Context) (int64, error) { return c.exec(ctx, c.remove, key) })
	}, err
}
