package crew

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/database"
)

// desk works on a database: in the lock's own transaction if there is one, otherwise in a
// transaction of its own.
type desk struct {
	pool   *pgxpool.Pool    // PostgreSQL
	db     *sql.DB          // MySQL and MariaDB
	number func(int) string // placeholder of an argument in a statement of database/sql
}

// openDesk opens a connection for each worker.
func openDesk(ctx context.Context, books Books, workers int) (*desk, error) {
	if books.Server != contest.PostgreSQL {
		db, err := database.SQL(ctx, books.Server, books.Address, workers)
		if err != nil {
			return nil, err
		}
		return &desk{db: db, number: func(int) string { return "?" }}, nil
	}
	pool, err := database.Pool(ctx, books.Address, workers)
	if err != nil {
		return nil, err
	}
	return &desk{
		pool:   pool,
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
