package contestants

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	byHand{
		Contestant: contest.Contestant{
			Name: "ShedLock's statements", Waits: contest.Polling, Leased: true, Parts: contest.Faults,
			Remark: "its JDBC provider with usingDbTime: lock_until by the database's clock; no renewal",
		},
		tables: []table{{
			name: "bench_shedlock",
			columns: "name VARCHAR(64) PRIMARY KEY, lock_until {moment} NOT NULL, locked_at {moment} NOT NULL, " +
				"locked_by VARCHAR(255) NOT NULL",
		}},
		client: func(db database, _ time.Duration, write func(string) string) contest.Client {
			return shedLock{
				database: db,
				insert: write("{insert if new} bench_shedlock (name, lock_until, locked_at, locked_by) " +
					"VALUES (?, {deadline}, {now}, ?) {if new}"),
				update: write("UPDATE bench_shedlock SET lock_until = {deadline}, locked_at = {now}, locked_by = ? " +
					"WHERE name = ? AND lock_until <= {now}"),
				unlock: write("UPDATE bench_shedlock SET lock_until = {now} WHERE name = ? AND locked_by = ?"),
			}
		},
	}.register()
}

// shedLock is a row with an end, which is looked at when it is taken, and not when it is used.
type shedLock struct {
	database
	insert, update, unlock string
}

// Hold implements contest.Client.
func (c shedLock) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

func (c shedLock) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	holder := rand.Text()
	err := poll(ctx, contest.PollInterval, key, func(ctx context.Context) (bool, error) {
		n, err := c.exec(ctx, c.insert, key, holder)
		if err == nil && n == 0 {
			n, err = c.exec(ctx, c.update, holder, key)
		}
		return n == 1, err
	})
	return ctx, func() error {
		return unlock(ctx, key, func(ctx context.Context) (int64, error) { return c.exec(ctx, c.unlock, key, holder) })
	}, err
}
