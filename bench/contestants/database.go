package contestants

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

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
		pool, err := pools.Pool(ctx, env.Address, env.Contenders)
		return postgresDatabase{pool, postgresStatements{pool}}, err
	}
	// READ COMMITTED is PostgreSQL's default. Users of MySQL set it to avoid deadlocks over gaps
	// between rows.
	isolation := "transaction_isolation"
	if server == contest.MariaDB {
		isolation = "tx_isolation"
	}
	db, err := mysqlPool(ctx, env, func(config *mysql.Config) {
		config.Params = map[string]string{isolation: "'READ-COMMITTED'"}
	})
	return mysqlDatabase{db, mysqlStatements{db}}, err
}

// prepare runs do on a database with one connection.
func prepare(ctx context.Context, server contest.Server, env contest.Environment, do func(database) error) error {
	env.Contenders = 1
	db, err := openDatabase(ctx, server, env)
	if err != nil {
		return err
	}
	return errors.Join(do(db), db.Close())
}

// create creates a new table.
func create(ctx context.Context, db database, table, columns string) error {
	for _, statement := range []string{
		"DROP TABLE IF EXISTS " + table, "CREATE TABLE " + table + " (" + columns + ")",
	} {
		if _, err := db.exec(ctx, statement); err != nil {
			return fmt.Errorf("create %s: %w", table, err)
		}
	}
	return nil
}

// write translates a statement for a server. {moment} is the type of a time, {now} the current
// time, {deadline} the end of a lease that begins now. "{insert if new} t VALUES (…) {if new}"
// inserts a row unless it exists. Parameters are written as ?.
func write(server contest.Server, statement string, lease time.Duration) string {
	length := strconv.FormatInt(lease.Microseconds(), 10)
	if server != contest.PostgreSQL {
		return strings.NewReplacer("{moment}", "DATETIME(6)", "{now}", "UTC_TIMESTAMP(6)",
			"{deadline}", "UTC_TIMESTAMP(6) + INTERVAL "+length+" MICROSECOND",
			"{insert if new}", "INSERT IGNORE INTO", "{if new}", "").Replace(statement)
	}
	var numbered strings.Builder
	for i, part := range strings.Split(statement, "?") {
		if i > 0 {
			numbered.WriteString("$" + strconv.Itoa(i))
		}
		numbered.WriteString(part)
	}
	// now() would be the start of the transaction, which may have waited since.
	return strings.NewReplacer("{moment}", "TIMESTAMPTZ", "{now}", "clock_timestamp()",
		"{deadline}", "clock_timestamp() + INTERVAL '"+length+" microseconds'",
		"{insert if new}", "INSERT INTO", "{if new}", "ON CONFLICT DO NOTHING").Replace(numbered.String())
}

// mysqlPool connects to MySQL or MariaDB with the settings of a contestant.
func mysqlPool(ctx context.Context, env contest.Environment, set func(*mysql.Config)) (*sql.DB, error) {
	config, err := mysql.ParseDSN(env.Address)
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
	return false
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
