package contestants

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
)

// registerSellers registers Combine and Exec under the row of the article that all want.
func (c client) registerSellers() {
	c.register(c.contestant("txlock Combine",
		"sales that arrive while others commit share the next transaction, of one statement for each table",
		contest.HotRow), form{use: useDo}, func(opened contest.Client) contest.Client {
		if l, ok := opened.(library[pgx.Tx]); ok {
			return combine(l, bookPostgres)
		}
		return combine(opened.(library[*sql.Tx]), bookMySQL)
	})
	for rows, remark := range []string{"; a CHECK of the table judges", "; Rows: 1 judges"} {
		of := c.contestant("txlock Exec", "the lock, the UPDATE, the INSERT and the COMMIT"+remark, contest.HotRow)
		of.Name += []string{", of the row", ", of the row, with Rows"}[rows]
		c.register(of, form{use: useDo}, func(opened contest.Client) contest.Client {
			if l, ok := opened.(library[pgx.Tx]); ok {
				return executing[pgx.Tx]{l, c.server, rows}
			}
			return executing[*sql.Tx]{opened.(library[*sql.Tx]), c.server, rows}
		})
	}
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

// executing is a client whose callers sell in one round trip each.
type executing[Tx any] struct {
	library[Tx]
	server contest.Server
	rows   int // that the UPDATE must affect; 0: any number
}

// Sell implements contest.Seller.
func (c executing[Tx]) Sell(ctx context.Context, order int64) error {
	take := "UPDATE " + contest.StockTable + " SET stock = stock - 1 WHERE article = ?"
	note := "INSERT INTO " + contest.SalesTable + " (id, article) VALUES (?, ?)"
	if c.server == contest.PostgreSQL {
		take, note = pools.Numbered(take), pools.Numbered(note)
	}
	_, err := c.locks.Rows(contest.StockTable, "article", contest.Article).Exec(ctx,
		txlock.Statement{SQL: take, Args: []any{contest.Article}, Rows: c.rows},
		txlock.Statement{SQL: note, Args: []any{order, contest.Article}})
	return err
}
