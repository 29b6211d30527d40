package contestants

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/txlock/txlock/bench/contest"
)

const leaseTable = "bench_leases"

func init() {
	for _, server := range contest.Databases {
		contest.Register(contest.Contestant{
			Name: fmt.Sprintf("lease table, %s", server), Group: contest.InSQL, Server: server, Waits: contest.Polling,
			Remark: "a row that its holder renews at three quarters of the lease, every 100 ms looked for",
			Parts:  contest.Standard,
			Prepare: func(ctx context.Context, env contest.Environment, _ []string) error {
				return prepare(ctx, server, env, func(db database) error {
					return create(ctx, db, leaseTable, write(server,
						"name VARCHAR(255) PRIMARY KEY, holder VARCHAR(64) NOT NULL, expires_at {moment} NOT NULL", 0))
				})
			},
			Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
				db, err := openDatabase(ctx, server, env)
				if err != nil {
					return nil, err
				}
				sql := func(statement string) string { return write(server, statement, env.Lease) }
				return leases{
					database: db,
					lease:    env.Lease,
					expire:   sql("DELETE FROM " + leaseTable + " WHERE name = ? AND expires_at < {now}"),
					insert: sql("{insert if new} " + leaseTable + " (name, holder, expires_at) VALUES " +
						"(?, ?, {deadline}) {if new}"),
					renew:  sql("UPDATE " + leaseTable + " SET expires_at = {deadline} WHERE name = ? AND holder = ?"),
					remove: sql("DELETE FROM " + leaseTable + " WHERE name = ? AND holder = ?"),
				}, nil
			},
		})
	}
}

// leases locks by inserting a row under a unique key, and unlocks by deleting it. The row expires
// by the database's clock unless its holder renews it. ShedLock, pglock and many hand-made locks
// work like that.
type leases struct {
	database
	lease                         time.Duration
	expire, insert, renew, remove string
}

// Hold implements contest.Client.
func (c leases) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

func (c leases) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	holder := rand.Text()
	err := contest.Poll(ctx, contest.PollInterval, func() (bool, error) {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		// A try that is interrupted might take a lock that nobody unlocks.
		trying, cancel := contest.Unlocking(ctx)
		defer cancel()
		locked, err := c.try(trying, key, holder)
		if again(err) {
			return false, nil
		}
		return locked, err
	})
	if err != nil {
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

func (c leases) try(ctx context.Context, key, holder string) (locked bool, err error) {
	if _, err := c.exec(ctx, c.expire, key); err != nil {
		return false, err
	}
	inserted, err := c.exec(ctx, c.insert, key, holder)
	return inserted == 1, err
}

// errLost is the error of an unlock when another holder has, or had, the lock.
var errLost = errors.New("the lock was lost before it was unlocked")

func (c leases) unlock(ctx context.Context, key, holder string) error {
	ctx, cancel := contest.Unlocking(ctx)
	defer cancel()
	removed, err := c.exec(ctx, c.remove, key, holder)
	for again(err) && ctx.Err() == nil {
		removed, err = c.exec(ctx, c.remove, key, holder)
	}
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
