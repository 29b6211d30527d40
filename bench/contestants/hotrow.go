package contestants

import (
	"context"
	"fmt"

	"github.com/txlock/txlock/bench/contest"
)

// Sales of one article without a lock: the row of its stock is the lock.
func init() {
	for _, server := range contest.Databases {
		contest.Register(contest.Contestant{
			Name: fmt.Sprintf("transaction by hand, %s", server), Group: contest.ByHand, Server: server,
			Waits: contest.Queued, Parts: contest.HotRow, Remark: "begin, UPDATE, INSERT, commit",
			Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
				db, err := openDatabase(ctx, server, env)
				return unlocked{db}, err
			},
		})
	}
}

// unlocked locks nothing: work that writes the same row waits for it.
type unlocked struct{ database }

// Hold implements contest.Client.
func (c unlocked) Hold(ctx context.Context, _ []string, work contest.Work) error {
	return c.transact(ctx, func(tx transaction) error { return work(ctx, tx.Tx()) })
}
