package crew

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/database"
	"github.com/txlock/txlock/internal/test/shop"
)

// desk works on a database: in the lock's own transaction if there is one, otherwise in a
// transaction of its own.
type desk struct {
	pool   *pgxpool.Pool // PostgreSQL
	db     *sql.DB       // MySQL and MariaDB
	pgx    shop.Ledger[pgx.Tx]
	sql    shop.Ledger[*sql.Tx]
	number func(int) string // placeholder of an argument in a statement of database/sql
}

// openDesk opens a connection for each worker.
func openDesk(ctx context.Context, books Books, workers int) (*desk, error) {
	if books.Server != contest.PostgreSQL {
		db, err := database.SQL(ctx, books.Server, books.Address, workers)
		if err != nil {
			return nil, err
		}
		return &desk{db: db, sql: shop.NewMySQL(db), number: func(int) string { return "?" }}, nil
	}
	pool, err := database.Pool(ctx, books.Address, workers)
	if err != nil {
		return nil, err
	}
	return &desk{
		// NewPostgresSQL gets no pool: it only works in the lock's transactions.
		pool: pool, pgx: shop.NewPostgres(pool), sql: shop.NewPostgresSQL(nil),
		number: func(n int) string { return fmt.Sprintf("$%d", n) },
	}, nil
}

func (d *desk) close() {
	if d.pool != nil {
		d.pool.Close()
	}
	if d.db != nil {
		_ = d.db.Close()
	}
}

// Shop is what the parent needs of a shop, with either client library.
type Shop interface {
	Open(ctx context.Context, stock map[string]int) error
	Books(ctx context.Context) (shop.Books, error)
	Drop(ctx context.Context, others ...string) error
}

// OpenShop connects to the shop in a database.
func OpenShop(ctx context.Context, books Books) (opened Shop, closeShop func(), err error) {
	desk, err := openDesk(ctx, books, 1)
	if err != nil {
		return nil, nil, err
	}
	if desk.pool != nil {
		return desk.pgx, desk.close, nil
	}
	return desk.sql, desk.close, nil
}

// decide decides on an order.
func (d *desk) decide(ctx context.Context, tx contest.Tx, o shop.Order) (outcome shop.Outcome, err error) {
	switch tx := tx.(type) {
	case pgx.Tx:
		return shop.Decide(ctx, d.pgx, tx, o)
	case *sql.Tx:
		return shop.Decide(ctx, d.sql, tx, o)
	}
	if d.pool != nil {
		err = d.pgx.Transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
			outcome, err = shop.Decide(ctx, d.pgx, tx, o)
			return err
		})
		return outcome, err
	}
	err = d.sql.Transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
		outcome, err = shop.Decide(ctx, d.sql, tx, o)
		return err
	})
	return outcome, err
}

// read reads the number of an account.
func (d *desk) read(ctx context.Context, tx contest.Tx, account string) (number int64, err error) {
	query := "SELECT number FROM bench_accounts WHERE name = " + d.number(1)
	switch tx := tx.(type) {
	case pgx.Tx:
		err = tx.QueryRow(ctx, query, account).Scan(&number)
	case *sql.Tx:
		err = tx.QueryRowContext(ctx, query, account).Scan(&number)
	case nil:
		if d.pool != nil {
			err = d.pool.QueryRow(ctx, query, account).Scan(&number)
		} else {
			err = d.db.QueryRowContext(ctx, query, account).Scan(&number)
		}
	}
	return number, err
}

// write writes the number of an account.
func (d *desk) write(ctx context.Context, tx contest.Tx, account string, number int64) error {
	return d.exec(ctx, tx, "UPDATE bench_accounts SET number = "+d.number(1)+" WHERE name = "+d.number(2), number,
		account)
}

// exec runs a statement, in a transaction if there is one.
func (d *desk) exec(ctx context.Context, tx contest.Tx, statement string, arguments ...any) (err error) {
	switch tx := tx.(type) {
	case pgx.Tx:
		_, err = tx.Exec(ctx, statement, arguments...)
	case *sql.Tx:
		_, err = tx.ExecContext(ctx, statement, arguments...)
	case nil:
		if d.pool != nil {
			_, err = d.pool.Exec(ctx, statement, arguments...)
		} else {
			_, err = d.db.ExecContext(ctx, statement, arguments...)
		}
	}
	return err
}
