package contestants

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/dialects"
)

// registerCombine registers a client of the library whose callers sell together, under the row of
// the article.
func (open opener) registerCombine(c contest.Contestant, client string) {
	c.Name, c.Floor, c.Bare, c.Parts = "txlock Combine, "+client, "", "", contest.HotRow
	c.Remark = "sales that arrive while others commit share the next transaction, of one statement for each table"
	c.Open = func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		opened, err := open(ctx, env, form{slots: dialects.DefaultSlots, use: useDo})
		if err != nil {
			return nil, err
		}
		switch l := opened.(type) {
		case library[pgx.Tx]:
			return combine(l, bookPostgres), nil
		case library[*sql.Tx]:
			return combine(l, bookMySQL), nil
		}
		return nil, fmt.Errorf("bug: a library of another transaction: %T", opened)
	}
	c.Prepare = nothing // another use of the client has installed the slots
	contest.Register(c)
}

// combining is a client whose callers sell together.
type combining[Tx any] struct {
	library[Tx]
	sales *txlock.Combined[Tx, int64, struct{}]
}

func combine[Tx any](l library[Tx], book func(ctx context.Context, tx Tx, orders []int64) error) combining[Tx] {
	return combining[Tx]{l, txlock.Combine(func([]int64) *txlock.Mutex[Tx] {
		return l.locks.Rows(contest.StockTable, "article", contest.Article)
	}, func(ctx context.Context, tx Tx, orders []int64) ([]txlock.Result[struct{}], error) {
		return make([]txlock.Result[struct{}], len(orders)), book(ctx, tx, orders)
	})}
}

// Sell implements contest.Seller.
func (c combining[Tx]) Sell(ctx context.Context, order int64) error {
	_, err := c.sales.Do(ctx, order)
	return err
}

func bookPostgres(ctx context.Context, tx pgx.Tx, orders []int64) error {
	_, err := tx.Exec(ctx, "WITH sold AS (INSERT INTO "+contest.SalesTable+" (id, article) "+
		"SELECT id, $2 FROM unnest($1::bigint[]) AS id RETURNING id) "+
		"UPDATE "+contest.StockTable+" SET stock = stock - (SELECT count(*) FROM sold) WHERE article = $2",
		orders, contest.Article)
	return err
}

// bookMySQL sends both statements at once, as mysql.Open allows.
func bookMySQL(ctx context.Context, tx *sql.Tx, orders []int64) error {
	var b strings.Builder
	fmt.Fprintf(&b, "INSERT INTO %s (id, article) VALUES ", contest.SalesTable)
	for i, order := range orders {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "(%d, %d)", order, contest.Article)
	}
	fmt.Fprintf(&b, "; UPDATE %s SET stock = stock - %d WHERE article = %d", contest.StockTable, len(orders),
		contest.Article)
	_, err := tx.ExecContext(ctx, b.String())
	return err
}
