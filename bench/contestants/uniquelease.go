package contestants

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	byHand{
		Contestant: contest.Contestant{
			Name: "unique key with lease", Waits: contest.Polling, Leased: true,
			Remark: "renewed at three quarters of the lease; expired rows are deleted before locking",
		},
		tables: []table{{
			name:    "bench_unique_lease",
			columns: "name VARCHAR(255) PRIMARY KEY, holder VARCHAR(64) NOT NULL, expires_at {moment} NOT NULL",
		}},
		client: func(db database, lease time.Duration, write func(string) string) contest.Client {
			return uniqueLease{
				database: db,
				lease:    lease,
				expire:   write("DELETE FROM bench_unique_lease WHERE name = ? AND expires_at < {now}"),
				insert: write("{insert if new} bench_unique_lease (name, holder, expires_at) VALUES (?, ?, " +
					"{deadline}) {if new}"),
				renew:  write("UPDATE bench_unique_lease SET expires_at = {deadline} WHERE name = ? AND holder = ?"),
				remove: write("DELETE FROM bench_unique_lease WHERE name = ? AND holder = ?"),
			}
		},
	}.register()
}

// uniqueLease is [uniqueKey] with a row that expires by the database's clock unless its holder
// renews it.
type uniqueLease struct {
	database
	lease                         time.Duration
	expire, insert, renew, remove string
}

// Hold implements contest.Client.
func (c uniqueLease) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

func (c uniqueLease) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	holder := rand.Text()
	err := poll(ctx, contest.PollInterval, key, func(ctx context.Context) (bool, error) {
		if _, err := c.exec(ctx, c.expire, key); err != nil {
			return false, err
		}
		inserted, err := c.exec(ctx, c.insert, key, holder)
		return inserted == 1, err
	})
	if err != nil {
		return nil, nil, err
	}
	held, lose := context.WithCancelCause(ctx)
	unlocked, rested := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(rested)
		if err := c.keep(ctx, key, holder, unlocked); err != nil {
			lose(err)
		}
	}()
	return held, func() error {
		close(unlocked)
		<-rested // otherwise a renewal could find the row gone
		lose(nil)
		return unlock(ctx, key, func(ctx context.Context) (int64, error) { return c.exec(ctx, c.remove, key, holder) })
	}, nil
}

// keep renews the lease until the lock is unlocked or lost. A renewal may not take longer than the
// lease, because then another may have the lock.
func (c uniqueLease) keep(ctx context.Context, key, holder string, unlocked <-chan struct{}) error {
	ticker := time.NewTicker(c.lease * 3 / 4)
	defer ticker.Stop()
	for {
		select {
		case <-unlocked:
			return nil
		case <-ticker.C:
		}
		renewing, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.lease/4)
		renewed, err := c.exec(renewing, c.renew, key, holder)
		cancel()
		if err == nil && renewed == 0 {
			err = errLost
		}
		if err != nil {
			return fmt.Errorf("renew the lease of %q: %w", key, err)
		}
	}
}
