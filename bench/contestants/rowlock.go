package contestants

import (
	"context"
	"fmt"

	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
)

// Locks of a transaction by hand. They last until its commit, and the work runs in it. The row of a
// key is that of its slot, as in byhand.go.
func init() {
	for _, server := range contest.Databases {
		register(contest.Contestant{
			// The row of the stock is the lock: work that writes the same row waits for it.
			Name: fmt.Sprintf("transaction by hand, %s", server), Group: contest.ByHand, Server: server,
			Parts: contest.HotRow, Remark: "begin, UPDATE, INSERT, commit",
		}, "", nil)
		register(contest.Contestant{
			Name: fmt.Sprintf("SELECT … FOR UPDATE, %s", server), Group: contest.InSQL, Server: server,
			Parts: contest.Standard, Remark: "the row of the key, until the commit",
			Prepare: func(ctx context.Context, env contest.Environment) error { return seedSlots(ctx, server, env) },
		}, "SELECT slot FROM "+slotTable+" WHERE slot = ? FOR UPDATE", slotOf)
	}
	register(contest.Contestant{
		Name: "pg_advisory_xact_lock", Group: contest.InSQL, Server: contest.PostgreSQL,
		Parts: contest.Standard | contest.HotRow, Remark: "until the commit",
	}, "SELECT pg_advisory_xact_lock(?)", hashed)
}

// register registers a contestant with a statement that locks the number of a key in a transaction,
// or waits for it. Without a statement nothing is locked.
func register(c contest.Contestant, statement string, number func(key string) int64) {
	c.Waits = contest.Queued
	c.Open = func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		db, err := pools.Open(ctx, c.Server, env.Address, env.Contenders)
		return transacted{db, statement, number}, err
	}
	contest.Register(c)
}

type transacted struct {
	*pools.Database
	statement string
	number    func(key string) int64
}

// Hold implements contest.Client.
func (c transacted) Hold(ctx context.Context, keys []string, work contest.Work) error {
	if c.statement == "" {
		keys = nil
	}
	return c.Transact(ctx, func(tx contest.Tx) error {
		for _, key := range keys {
			if _, err := c.Exec(ctx, tx, c.statement, c.number(key)); err != nil {
				return fmt.Errorf("lock %q: %w", key, err)
			}
		}
		return work(ctx, tx)
	})
}
