package contestants

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/txlock/txlock/bench/contest"
)

// Locks of a transaction in SQL: the row of the key, and the lock that PostgreSQL has for it.
func init() {
	const table = "bench_row_locks"
	for _, server := range contest.Databases {
		c := transactionLock{statement: write(server, "SELECT name FROM "+table+" WHERE name = ? FOR UPDATE", 0)}
		c.argument = func(key string) any { return key }
		c.register(contest.Contestant{
			Name: fmt.Sprintf("SELECT … FOR UPDATE, %s", server), Server: server,
			Remark: "a table with a row for each key, until the commit",
			Parts:  contest.Standard,
			Prepare: func(ctx context.Context, env contest.Environment, keys []string) error {
				return createKeys(ctx, server, env, table, keys)
			},
		})
	}
	c := transactionLock{statement: "SELECT pg_advisory_xact_lock($1)"}
	c.argument = func(key string) any { return hashed(key) }
	c.register(contest.Contestant{
		Name: "pg_advisory_xact_lock", Server: contest.PostgreSQL, Remark: "until the commit",
		Parts: contest.Standard | contest.HotRow,
	})
}

// transactionLock is a statement that locks a key, or waits for it. The lock lasts until the end of
// the transaction in which it runs.
type transactionLock struct {
	database
	statement string
	argument  func(key string) any
}

func (c transactionLock) register(of contest.Contestant) {
	of.Group, of.Waits = contest.InSQL, contest.Queued
	of.Open = func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		db, err := openDatabase(ctx, of.Server, env)
		opened := c
		opened.database = db
		return opened, err
	}
	contest.Register(of)
}

// Hold implements contest.Client.
func (c transactionLock) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return transactAgain(ctx, c, func(tx transaction) error {
		for _, key := range keys {
			if _, err := tx.exec(ctx, c.statement, c.argument(key)); err != nil {
				return fmt.Errorf("lock %q: %w", key, err)
			}
		}
		return work(ctx, tx.Tx())
	})
}

// createKeys creates a table with a row for each key.
func createKeys(ctx context.Context, server contest.Server, env contest.Environment, table string, keys []string,
) error {
	return prepare(ctx, server, env, func(db database) error {
		if err := create(ctx, db, table, "name VARCHAR(255) PRIMARY KEY"); err != nil {
			return err
		}
		for some := range slices.Chunk(keys, 1000) {
			names := make([]any, len(some))
			for i, key := range some {
				names[i] = key
			}
			insert := "INSERT INTO " + table + " (name) VALUES (?)" + strings.Repeat(", (?)", len(some)-1)
			if _, err := db.exec(ctx, write(server, insert, 0), names...); err != nil {
				return err
			}
		}
		return nil
	})
}
