package contestants

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

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
			return pools.Run(ctx, contest.PostgreSQL, env.Address, "DROP TABLE IF EXISTS "+leaseTable,
				"CREATE TABLE "+leaseTable+
					" (name TEXT PRIMARY KEY, holder TEXT NOT NULL, expires_at TIMESTAMPTZ NOT NULL)")
		},
		Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
			db, err := pools.Open(ctx, contest.PostgreSQL, env.Address, env.Contenders)
			return leases{db, env.Lease}, err
		},
	})
}

// leases locks by inserting a row under a unique key, and unlocks by deleting it. The row expires
// by the database's clock unless its holder renews it. ShedLock, pglock and many hand-made locks
// work like that.
type leases struct {
	*pools.Database
	lease time.Duration
}

// Hold implements contest.Client.
func (c leases) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

func (c leases) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	holder := rand.Text()
	if err := c.poll(ctx, key, holder); err != nil {
		return nil, nil, fmt.Errorf("lock %q: %w", key, err)
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
		return c.unlock(ctx, key, holder)
	}, nil
}

// poll tries until it succeeds, fails, or ctx ends.
func (c leases) poll(ctx context.Context, key, holder string) error {
	for {
		locked, err := c.try(ctx, key, holder)
		if locked || err != nil {
			return err
		}
		select {
		case <-time.After(contest.PollInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// try is not interrupted: it might take a lock that nobody unlocks. In its statements now() would
// be the start of the transaction, which may have waited since.
func (c leases) try(ctx context.Context, key, holder string) (locked bool, err error) {
	ctx, cancel := contest.Unlocking(ctx)
	defer cancel()
	if _, err := c.Exec(ctx, nil, "DELETE FROM "+leaseTable+" WHERE name = ? AND expires_at < clock_timestamp()",
		key); err != nil {
		return false, err
	}
	inserted, err := c.Exec(ctx, nil, "INSERT INTO "+leaseTable+
		" VALUES (?, ?, clock_timestamp() + ?::interval) ON CONFLICT DO NOTHING", key, holder, c.lease)
	return inserted == 1, err
}

// errLost is the error of an unlock when another holder has, or had, the lock.
var errLost = errors.New("the lock was lost before it was unlocked")

func (c leases) unlock(ctx context.Context, key, holder string) error {
	ctx, cancel := contest.Unlocking(ctx)
	defer cancel()
	removed, err := c.Exec(ctx, nil, "DELETE FROM "+leaseTable+" WHERE name = ? AND holder = ?", key, holder)
	if err == nil && removed == 0 {
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
		renewed, err := c.Exec(renewing, nil, "UPDATE "+leaseTable+
			" SET expires_at = clock_timestamp() + ?::interval WHERE name = ? AND holder = ?", c.lease, key, holder)
		cancel()
		if err == nil && renewed == 0 {
			err = errLost
		}
		if err != nil {
			return fmt.Errorf("renew the lease of %q: %w", key, err)
		}
	}
}
