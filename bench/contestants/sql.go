package contestants

import (
	"context"
	"database/sql"
	"errors"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
)

// database is a pool of connections to PostgreSQL, MySQL or MariaDB, used the way their users do:
// through pgx or through database/sql.
type database interface {
	statements
	// transact runs do in a transaction, and commits it unless do fails.
	transact(ctx context.Context, do func(tx transaction) error) error
	Close() error
}

// statements runs SQL statements, each by itself or all in a transaction.
type statements interface {
	exec(ctx context.Context, statement string, arguments ...any) (affected int64, err error)
	// one scans the only row of a result.
	one(ctx context.Context, into []any, query string, arguments ...any) error
}

// transaction is a transaction of either database. Tx is what the user's work gets.
type transaction interface {
	statements
	Tx() contest.Tx
}

// openDatabase connects to a database.
func openDatabase(ctx context.Context, server contest.Server, env contest.Environment) (database, error) {
	if server == contest.PostgreSQL {
		pool, err := pools.Pool(ctx, env.Address(), env.Contenders)
		return postgresDatabase{pool, postgresStatements{pool}}, err
	}
	// READ COMMITTED is PostgreSQL's default. Users of MySQL set it to avoid deadlocks over gaps
	// between rows.
	isolation := "transaction_isolation"
	if server == contest.MariaDB {
		isolation = "tx_isolation"
	}
	db, err := openMySQL(ctx, env, func(config *mysql.Config) {
		config.Params = map[string]string{isolation: "'READ-COMMITTED'"}
	})
	return mysqlDatabase{db, mysqlStatements{db}}, err
}

// openMySQL connects to MySQL or MariaDB with the settings of a contestant.
func openMySQL(ctx context.Context, env contest.Environment, set func(*mysql.Config)) (*sql.DB, error) {
	config, err := mysql.ParseDSN(env.Address())
	if err != nil {
		return nil, err
	}
	set(config)
	return pools.SQL(ctx, contest.MySQL, config.FormatDSN(), env.Contenders)
}

type postgresStatements struct {
	on interface {
		Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
		QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row
	}
}

func (s postgresStatements) exec(ctx context.Context, statement string, arguments ...any) (int64, error) {
	tag, err := s.on.Exec(ctx, statement, arguments...)
	return tag.RowsAffected(), err
}

func (s postgresStatements) one(ctx context.Context, into []any, query string, arguments ...any) error {
	return s.on.QueryRow(ctx, query, arguments...).Scan(into...)
}

// Tx implements transaction.
func (s postgresStatements) Tx() contest.Tx { return s.on }

type postgresDatabase struct {
	pool *pgxpool.Pool
	postgresStatements
}

func (d postgresDatabase) transact(ctx context.Context, do func(transaction) error) error {
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { return do(postgresStatements{tx}) })
}

// Close implements contest.Client.
func (d postgresDatabase) Close() error {
	d.pool.Close()
	return nil
}

type mysqlStatements struct {
	on interface {
		ExecContext(ctx context.Context, statement string, arguments ...any) (sql.Result, error)
		QueryRowContext(ctx context.Context, query string, arguments ...any) *sql.Row
	}
}

func (s mysqlStatements) exec(ctx context.Context, statement string, arguments ...any) (int64, error) {
	result, err := s.on.ExecContext(ctx, statement, arguments...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (s mysqlStatements) one(ctx context.Context, into []any, query string, arguments ...any) error {
	return s.on.QueryRowContext(ctx, query, arguments...).Scan(into...)
}

// Tx implements transaction.
func (s mysqlStatements) Tx() contest.Tx { return s.on }

type mysqlDatabase struct {
	*sql.DB
	mysqlStatements
}

func (d mysqlDatabase) transact(ctx context.Context, do func(transaction) error) error {
	return transactSQL(ctx, d.DB, func(tx *sql.Tx) error { return do(mysqlStatements{tx}) })
}

func transactSQL(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
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

// errOvertaken ends a transaction whose work became worthless through another's commit.
var errOvertaken = errors.New("another was faster")

// again reports whether trying again can help: after a deadlock or a similar conflict, and after
// MySQL's limit on a wait, which is not the limit of the contestant.
func again(err error) bool {
	var fromPostgres *pgconn.PgError
	var fromMySQL *mysql.MySQLError
	switch {
	case errors.As(err, &fromPostgres):
		return fromPostgres.Code == "40P01" || fromPostgres.Code == "40001"
	case errors.As(err, &fromMySQL):
		return fromMySQL.Number == 1213 || fromMySQL.Number == 1205
	}
	return errors.Is(err, errOvertaken)
}

// transactAgain repeats transact while its error is [again], until ctx ends.
func transactAgain(ctx context.Context, db database, do func(tx transaction) error) error {
	for {
		err := db.transact(ctx, do)
		if !again(err) {
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
