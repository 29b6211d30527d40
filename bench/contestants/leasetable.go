package contestants

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
)

const leaseTable = "bench_leases"

func init() {
	contest.Register(contest.Contestant{
		Name: "lease table", Group: contest.InSQL, Server: contest.PostgreSQL, Waits: contest.Polling,
		Remark: "a row that its holder renews at three quarters of the lease, every 100 ms looked for",
		Parts:  contest.Standard,
		Prepare: func(ctx context.Context, env contest.Environment) error {
			return pools.Execute(ctx, contest.PostgreSQL, env.Address, "DROP TABLE IF EXISTS "+leaseTable,
				"CREATE TABLE "+leaseTable+
					" (name TEXT PRIMARY KEY, holder TEXT NOT NULL, expires_at TIMESTAMPTZ NOT NULL)")
		},
		Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
			pool, err := pools.Pool(ctx, env.Address, env.Contenders)
			return leases{pool, env.Lease}, err
		},
	})
}

// leases locks by inserting a row under a unique key, and unlocks by deleting it. The row expires
// by the database's clock unless its holder renews it. ShedLock, pglock and many hand-made locks
// work like that.
type leases struct {
	pool  *pgxpool.Pool
	lease time.Duration
}

// Hold implements contest.Client.
func (c leases) Hold(ctx context.Context, key string, work contest.Work) (err error) {
	holder := rand.Text()
	if err := contest.Poll(ctx, contest.PollInterval, func() (bool, error) {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		// A try that is interrupted might take a lock that nobody unlocks.
		trying, cancel := contest.Unlocking(ctx)
		defer cancel()
		return c.try(trying, key, holder)
	}); err != nil {
		return fmt.Errorf("lock %q: %w", key, err)
	}
	held, lose := context.WithCancelCause(ctx)
	unlocked, rested := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(rested)
		if err := c.keep(ctx, key, holder, unlocked); err != nil {
			lose(err)
		}
	}()
	defer func() {
		close(unlocked)
		<-rested // otherwise a renewal could find the row gone
		lose(nil)
		err = errors.Join(err, c.unlock(ctx, key, holder))
	}()
	return work(held, nil)
}

// Close implements contest.Client.
func (c leases) Close() error {
	c.pool.Close()
	return nil
}

// now() would be the start of the transaction, which may have waited since.
func (c leases) try(ctx context.Context, key, holder string) (locked bool, err error) {
	if _, err := c.pool.Exec(ctx, "DELETE FROM "+leaseTable+" WHERE name = $1 AND expires_at < clock_timestamp()",
		key); err != nil {
		return false, err
	}
	inserted, err := c.pool.Exec(ctx, "INSERT INTO "+leaseTable+" VALUES ($1, $2, clock_timestamp() + $3::interval) "+
		"ON CONFLICT DO NOTHING", key, holder, c.lease)
	return inserted.RowsAffected() == 1, err
}

// errLost is the error of an unlock when another holder has, or had, the lock.
var errLost = errors.New("the lock was lost before it was unlocked")

func (c leases) unlock(ctx context.Context, key, holder string) error {
	ctx, cancel := contest.Unlocking(ctx)
	defer cancel()
	removed, err := c.pool.Exec(ctx, "DELETE FROM "+leaseTable+" WHERE name = $1 AND holder = $2", key, holder)
	if err == nil && removed.RowsAffected() == 0 {
		err = errLost
	}
	if err != nil {
		return fmt.Errorf("unlock %q: %w", key, err)
	}
	return nil
}

// keep renews the lease until the lock is unlocked or lost. A renewal may not take longer than the
// lease, because then another may have the lock.
func (c leases) keep(ctx context.Context, key, holder string, unlocked <-chan struct{}) error {
	ticker := time.NewTicker(c.lease * 3 / 4)
	defer ticker.Stop()
	for {
		select {
		case <-unlocked:
			return nil
		case <-ticker.C:
		}
		renewing, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.lease/4)
		renewed, err := c.pool.Exec(renewing, "UPDATE "+leaseTable+" SET expires_at = clock_timestamp() + "+
			"$3::interval WHERE name = $1 AND holder = $2", key, holder, c.lease)
		cancel()
		if err == nil && renewed.RowsAffected() == 0 {
			err = errLost
		}
		if err != nil {
			return fmt.Errorf("renew the lease of %q: %w", key, err)
		}
	}
}
