package contestants

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
)

// Sales of one article without a lock: the row of its stock is the lock, and work that writes the
// same row waits for it.
func init() {
	for _, server := range contest.Databases {
		contest.Register(contest.Contestant{
			Name: fmt.Sprintf("transaction by hand, %s", server), Group: contest.ByHand, Server: server,
			Waits: contest.Queued, Parts: contest.HotRow, Remark: "begin, UPDATE, INSERT, commit",
			Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
				if server == contest.PostgreSQL {
					return openTransactions(ctx, env)
				}
				return openTransactionsOnMySQL(ctx, server, env)
			},
		})
	}
}

func openTransactions(ctx context.Context, env contest.Environment) (contest.Client, error) {
	pool, err := pools.Pool(ctx, env.Address, env.Contenders)
	if err != nil {
		return nil, err
	}
	return holding{func(ctx context.Context, _ string, work contest.Work) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return work(ctx, tx) })
	}, pool.Close}, nil
}

func openTransactionsOnMySQL(ctx context.Context, server contest.Server, env contest.Environment) (
	contest.Client, error,
) {
	db, err := pools.SQL(ctx, server, env.Address, env.Contenders)
	if err != nil {
		return nil, err
	}
	return holding{func(ctx context.Context, _ string, work contest.Work) error {
		return transact(ctx, db, func(tx *sql.Tx) error { return work(ctx, tx) })
	}, func() { _ = db.Close() }}, nil
}

func transact(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}
