package contestants

import (
	"context"
	"time"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	registerUniqueKey("unique key", "bench_unique_key", contest.PollInterval, contest.Standard)
	registerUniqueKey("unique key every 10 ms", "bench_unique_key_brisk", contest.BriskInterval,
		contest.Standard|contest.ManyKeys)
}

func registerUniqueKey(name, uses string, every time.Duration, parts contest.Part) {
	byHand{
		Contestant: contest.Contestant{
			Name: name, Waits: contest.Polling, Parts: parts,
			Remark: "never expires: the row of a dead holder stays until somebody deletes it",
		},
		tables: []table{{name: uses, columns: "name VARCHAR(255) PRIMARY KEY"}},
		client: func(db database, _ time.Duration, write func(string) string) contest.Client {
			return uniqueKey{
				database: db,
				every:    every,
				insert:   write("{insert if new} " + uses + " (name) VALUES (?) {if new}"),
				remove:   write("DELETE FROM " + uses + " WHERE name = ?"),
			}
		},
	}.register()
}

// uniqueKey locks by inserting a row under a unique key, and unlocks by deleting it.
type uniqueKey struct {
	database
	every          time.Duration
	insert, remove string
}

// Hold implements contest.Client.
func (c uniqueKey) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

func (c uniqueKey) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	err := poll(ctx, c.every, key, func(ctx context.Context) (bool, error) {
		inserted, err := c.exec(ctx, c.insert, key)
		return inserted == 1, err
	})
	return ctx, func() error {
		return unlock(ctx, key, func(ctx context.Context) (int64, error) { return c.exec(ctx, c.remove, key) })
	}, err
}
