package contestants

import (
	"context"
	"errors"
	"fmt"

	"github.com/txlock/txlock/bench/contest"
)

// Sales of one article without a lock: the row of its stock is the lock.
func init() {
	for _, server := range []contest.Server{contest.PostgreSQL, contest.MySQL, contest.MariaDB} {
		for _, c := range []struct {
			name, remark string
			client       func(database) contest.Client
		}{
			{
				"transaction by hand", "begin, UPDATE, INSERT, commit",
				func(db database) contest.Client { return unlocked{db} },
			},
			{
				"autocommit UPDATE", "takes from the stock, and writes no sale",
				func(db database) contest.Client { return autocommit{unlocked{db}, updateStock(server)} },
			},
		} {
			contest.Register(contest.Contestant{
				Name: fmt.Sprintf("%s, %s", c.name, server), Group: contest.ByHand, Server: server,
				Waits: contest.Queued, Parts: contest.HotRow, Remark: c.remark, Prepare: nothing,
				Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
					db, err := openDatabase(ctx, server, env)
					if err != nil {
						return nil, err
					}
					return c.client(db), nil
				},
			})
		}
	}
}

// unlocked locks nothing: work that writes the same row waits for it.
type unlocked struct{ database }

// Hold implements contest.Client.
func (c unlocked) Hold(ctx context.Context, _ []string, work contest.Work) error {
	return c.transact(ctx, func(tx transaction) error { return work(ctx, tx.Tx()) })
}

// autocommit sells in one statement.
type autocommit struct {
	unlocked
	update string
}

func updateStock(server contest.Server) string {
	return write(server, "UPDATE "+contest.StockTable+" SET stock = stock - 1 WHERE article = ?", 0)
}

// Sell implements contest.Seller.
func (c autocommit) Sell(ctx context.Context, _ int64) error {
	updated, err := c.exec(ctx, c.update, contest.Article)
	if err == nil && updated != 1 {
		err = errors.New("the article is missing")
	}
	return err
}
