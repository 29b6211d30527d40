package contestants

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"time"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	byHand{
		Contestant: contest.Contestant{
			Name: "reentrant lock table", Waits: contest.Polling,
			Remark: "never expires: a dead holder has the lock until somebody takes it from him by hand",
		},
		tables: []table{{
			name:    "bench_reentrant",
			columns: "name VARCHAR(255) PRIMARY KEY, holder VARCHAR(64), holds INT NOT NULL DEFAULT 0",
			rows:    everyKey,
		}},
		client: func(db database, _ time.Duration, write func(string) string) contest.Client {
			return reentrant{
				database: db,
				look:     write("SELECT holder FROM bench_reentrant WHERE name = ? FOR UPDATE"),
				enter:    write("UPDATE bench_reentrant SET holder = ?, holds = holds + 1 WHERE name = ?"),
				// holder comes first: MySQL uses the new value of holds in the assignments after
				// it.
				leave: write("UPDATE bench_reentrant SET holder = CASE WHEN holds > 1 THEN holder END, holds = holds " +
					"- 1 " +
					"WHERE name = ? AND holder = ?"),
			}
		},
	}.register()
}

// reentrant is a table with the holder of each key, who may lock it again, and the number of holds.
// Each call of Hold is a holder of its own.
type reentrant struct {
	database
	look, enter, leave string
}

// Hold implements contest.Client.
func (c reentrant) Hold(ctx context.Context, keys []string, work contest.Work) error {
	holder := rand.Text()
	return contest.HoldEach(ctx, keys, func(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
		err := poll(ctx, contest.PollInterval, key, func(ctx context.Context) (bool, error) {
			return c.enterAs(ctx, holder, key)
		})
		return ctx, func() error {
			return unlock(ctx, key, func(ctx context.Context) (
				int64, error,
			) {
				return c.exec(ctx, c.leave, key, holder)
			})
		}, err
	}, work)
}

func (c reentrant) enterAs(ctx context.Context, holder, key string) (entered bool, err error) {
	err = c.transact(ctx, func(tx transaction) error {
		var present sql.NullString
		if err := tx.one(ctx, []any{&present}, c.look, key); err != nil {
			return fmt.Errorf("look at the holder: %w", err)
		}
		if present.Valid && present.String != holder {
			return nil
		}
		entered = true
		_, err := tx.exec(ctx, c.enter, holder, key)
		return err
	})
	return entered && err == nil, err
}
