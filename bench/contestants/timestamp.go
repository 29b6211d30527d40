package contestants

import (
	"context"
	"time"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	byHand{
		Contestant: contest.Contestant{
			Name: "timestamp compare-and-set", Waits: contest.Polling, Leased: true,
			Remark: "by the client's clock; no renewal: work longer than the TTL is not alone",
		},
		tables: []table{{
			name:    "bench_timestamp",
			columns: "name VARCHAR(255) PRIMARY KEY, last_lock_time {moment} NOT NULL DEFAULT '1970-01-01 00:00:00'",
			rows:    everyKey,
		}},
		client: func(db database, lease time.Duration, write func(string) string) contest.Client {
			return timestamp{
				database: db,
				ttl:      lease,
				take:     write("UPDATE bench_timestamp SET last_lock_time = ? WHERE name = ? AND last_lock_time < ?"),
				reset:    write("UPDATE bench_timestamp SET last_lock_time = ? WHERE name = ? AND last_lock_time = ?"),
			}
		},
	}.register()
}

// timestamp locks a row by writing the current time into it, if the time in it is older than the
// TTL. It unlocks by writing the epoch.
type timestamp struct {
	database
	ttl         time.Duration
	take, reset string
}

// Hold implements contest.Client.
func (c timestamp) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

// lock uses the client's clock. The unlock must know exactly what was written, and MySQL does not
// return that.
func (c timestamp) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	var stamp time.Time
	err := poll(ctx, contest.PollInterval, key, func(ctx context.Context) (bool, error) {
		stamp = time.Now().UTC().Truncate(time.Microsecond) // the precision of the column
		taken, err := c.exec(ctx, c.take, stamp, key, stamp.Add(-c.ttl))
		return taken == 1, err
	})
	return ctx, func() error {
		return unlock(ctx, key, func(ctx context.Context) (int64, error) {
			return c.exec(ctx, c.reset, time.Unix(0, 0).UTC(), key, stamp)
		})
	}, err
}
