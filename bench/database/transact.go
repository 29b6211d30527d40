package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock/bench/contest"
)

// Database is a pool of connections to PostgreSQL, MySQL or MariaDB, used the way their users do:
// through pgx or through database/sql.
type Database struct {
	pool *pgxpool.Pool // PostgreSQL
	db   *sql.DB       // MySQL and MariaDB
}

// Open connects to a database, with connections for this many concurrent callers.
func Open(ctx context.Context, server contest.Server, address string, callers int) (d *Database, err error) {
	d = &Database{}
	if server == contest.PostgreSQL {
		d.pool, err = Pool(ctx, address, callers)
	} else if address, err = atReadCommitted(server, address); err == nil {
		d.db, err = SQL(ctx, server, address, callers)
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// atReadCommitted is an address whose sessions have the default level of PostgreSQL. Users of MySQL
// set it to avoid deadlocks over gaps between rows.
func atReadCommitted(server contest.Server, address string) (string, error) {
	config, err := mysql.ParseDSN(address)
	if err != nil {
		return "", err
	}
	name := "transaction_isolation"
	if server == contest.MariaDB {
		name = "tx_isolation"
	}
	config.Params = map[string]string{name: "'READ-COMMITTED'"}
	return config.FormatDSN(), nil
}

// Run connects to a database to run statements.
func Run(ctx context.Context, server contest.Server, address string, statements ...string) error {
	d, err := Open(ctx, server, address, 1)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := d.Exec(ctx, nil, statement); err != nil {
			return errors.Join(fmt.Errorf("%s: %.60s: %w", server, statement, err), d.Close())
		}
	}
	return d.Close()
}

// Close ends the connections.
func (d *Database) Close() error {
	if d.pool == nil {
		return d.db.Close()
	}
	d.pool.Close()
	return nil
}

// Transact runs do in a transaction, and commits it unless do fails.
func (d *Database) Transact(ctx context.Context, do func(tx contest.Tx) error) error {
	if d.pool == nil {
		return TransactSQL(ctx, d.db, func(tx *sql.Tx) error { return do(tx) })
	}
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { return do(tx) })
}

// TransactSQL is Transact on a pool of database/sql.
func TransactSQL(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
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

// Exec runs a statement in a transaction or, without one, by itself. Its parameters are written
// as ?.
func (d *Database) Exec(ctx context.Context, tx contest.Tx, statement string, arguments ...any) (
	affected int64, err error,
) {
	switch on := d.on(tx).(type) {
	case interface {
		Exec(ctx context.Context, statement string, arguments ...any) (pgconn.CommandTag, error)
	}:
		tag, err := on.Exec(ctx, d.written(statement), arguments...)
		return tag.RowsAffected(), err
	case interface {
		ExecContext(ctx context.Context, statement string, arguments ...any) (sql.Result, error)
	}:
		result, err := on.ExecContext(ctx, d.written(statement), arguments...)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	}
	return 0, fmt.Errorf("no statement runs on a %T", tx)
}

// Number is the only value that a query returns.
func (d *Database) Number(ctx context.Context, tx contest.Tx, query string, arguments ...any) (
	number int64, err error,
) {
	switch on := d.on(tx).(type) {
	case interface {
		QueryRow(ctx context.Context, query string, arguments ...any) pgx.Row
	}:
		return number, on.QueryRow(ctx, d.written(query), arguments...).Scan(&number)
	case interface {
		QueryRowContext(ctx context.Context, query string, arguments ...any) *sql.Row
	}:
		return number, on.QueryRowContext(ctx, d.written(query), arguments...).Scan(&number)
	}
	return 0, fmt.Errorf("no query runs on a %T", tx)
}

// on is what runs a statement.
func (d *Database) on(tx contest.Tx) any {
	switch {
	case tx != nil:
		return tx
	case d.pool != nil:
		return d.pool
	}
	return d.db
}

func (d *Database) written(statement string) string {
	if d.pool == nil {
		return statement
	}
	return Numbered(statement)
}

// Numbered writes the parameters of a statement as PostgreSQL has them: $1 instead of the first ?.
func Numbered(statement string) string {
	for n := 1; strings.Contains(statement, "?"); n++ {
		statement = strings.Replace(statement, "?", "$"+strconv.Itoa(n), 1)
	}
	return statement
}
