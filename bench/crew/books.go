package crew

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/database"
)

// desk works on a database: in the lock's own transaction if there is one, otherwise in a
// transaction of its own.
type desk struct {
	db     *sql.DB
	number func(int) string // placeholder of an argument in a statement
}

// openDesk opens a connection for each worker.
func openDesk(ctx context.Context, books Books, workers int) (*desk, error) {
	db, err := database.SQL(ctx, books.Server, books.Address, workers)
	if err != nil {
		return nil, err
	}
	if books.Server == contest.PostgreSQL {
		return &desk{db, func(n int) string { return fmt.Sprintf("$%d", n) }}, nil
	}
	return &desk{db, func(int) string { return "?" }}, nil
}

func (d *desk) close() { _ = d.db.Close() }

// read reads the number of an account.
func (d *desk) read(ctx context.Context, tx contest.Tx, account string) (number int64, err error) {
	query := "SELECT number FROM bench_accounts WHERE name = " + d.number(1)
	switch tx := tx.(type) {
	case pgx.Tx:
		err = tx.QueryRow(ctx, query, account).Scan(&number)
	case *sql.Tx:
		err = tx.QueryRowContext(ctx, query, account).Scan(&number)
	case nil:
		err = d.db.QueryRowContext(ctx, query, account).Scan(&number)
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
		_, err = d.db.ExecContext(ctx, statement, arguments...)
	}
	return err
}
