package contestants

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/dialects"
)

// registerExec registers a client of the library whose callers each sell in one round trip, under
// the row of the article.
func (open opener) registerExec(c contest.Contestant, client string) {
	c.Name, c.Floor, c.Bare, c.Parts = "txlock Exec, "+client, "", "", contest.HotRow
	c.Remark = "the lock, the UPDATE of one piece that must be there, the INSERT and the commit in one round trip"
	server := c.Server
	c.Open = func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		opened, err := open(ctx, env, form{slots: dialects.DefaultSlots, use: useDo})
		if err != nil {
			return nil, err
		}
		switch l := opened.(type) {
		case library[pgx.Tx]:
			return flying[pgx.Tx]{l, server}, nil
		case library[*sql.Tx]:
			return flying[*sql.Tx]{l, server}, nil
		}
		return nil, fmt.Errorf("bug: a library of another transaction: %T", opened)
	}
	c.Prepare = nothing // another use of the client has installed the slots
	contest.Register(c)
}

// flying is a client whose callers sell in one round trip each.
type flying[Tx any] struct {
	library[Tx]
	server contest.Server
}

// Sell implements contest.Seller.
func (c flying[Tx]) Sell(ctx context.Context, order int64) error {
	_, err := c.locks.Rows(contest.StockTable, "article", contest.Article).Exec(ctx,
		txlock.Statement{SQL: updateStock(c.server) + " AND stock > 0", Args: []any{contest.Article}, Rows: 1},
		txlock.Statement{
			SQL:  write(c.server, "INSERT INTO "+contest.SalesTable+" (id, article) VALUES (?, ?)", 0),
			Args: []any{order, contest.Article},
		})
	return err
}
