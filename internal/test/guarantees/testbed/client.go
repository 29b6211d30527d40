package testbed

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// Client is one way to reach an engine.
type Client[Tx any] struct {
	Name string
	// Connect returns a driver on a pool of at most size connections, and that pool. 0: as many as
	// the pool has when nobody says a number.
	Connect func(t *testing.T, dsn string, size int) (dialects.Driver[Tx], pool)
	open    func(dsn string, size int) (dialects.Driver[Tx], error) // the same for a pool of the library's own
	// Unguarded says that nothing keeps what work sends behind a COMMIT of its own from being
	// committed: the library does not see the state of the session.
	Unguarded bool
	// Start begins a caller's own transaction on a connection of its own, which leave closes.
	Start func(dsn string, level sql.IsolationLevel) (tx Tx, leave func(), err error)
	End   func(ctx context.Context, tx Tx, commit bool) error
	Exec  func(ctx context.Context, tx Tx, query string) error
	Query func(ctx context.Context, tx Tx, query string) (string, error)
}

// pool is what a test looks at in a pool. A pool of the library's own shows less.
type pool struct {
	Close func()
	InUse func() int
	Open  func() int
	DB    *sql.DB // where it is one
}

// Begin is Start, and leaves when the test ends.
func (c Client[Tx]) Begin(t *testing.T, dsn string, level sql.IsolationLevel) Tx {
	t.Helper()
	tx, leave, err := c.Start(dsn, level)
	require.NoError(t, err)
	t.Cleanup(leave)
	return tx
}

// Read is what a query of one value returns in a transaction.
func (c Client[Tx]) Read(t *testing.T, tx Tx, query string) string {
	t.Helper()
	return must.Get(c.Query(background, tx, query))(t)
}

var pgxClient = Client[pgx.Tx]{
	Start: func(dsn string, level sql.IsolationLevel) (pgx.Tx, func(), error) {
		conn, err := pgx.Connect(context.Background(), dsn)
		if err != nil {
			return nil, nil, err
		}
		leave := func() { _ = conn.Close(context.Background()) }
		tx, err := conn.BeginTx(context.Background(), pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(
			strings.ToLower(map[bool]string{true: "", false: level.String()}[level == sql.LevelDefault]))})
		if err != nil {
			leave()
		}
		return tx, leave, err
	},
	End: func(ctx context.Context, tx pgx.Tx, commit bool) error {
		if commit {
			return tx.Commit(ctx)
		}
		return tx.Rollback(ctx)
	},
	Exec: func(ctx context.Context, tx pgx.Tx, query string) error {
		_, err := tx.Exec(ctx, query)
		return err
	},
	Query: func(ctx context.Context, tx pgx.Tx, query string) (text string, err error) {
		var value any
		err = tx.QueryRow(ctx, query).Scan(&value)
		return fmt.Sprint(value), err
	},
}

func sqlClient(open func(dsn string) (*sql.DB, error)) Client[*sql.Tx] {
	return Client[*sql.Tx]{
		Start: func(dsn string, level sql.IsolationLevel) (*sql.Tx, func(), error) {
			db, err := open(dsn)
			if err != nil {
				return nil, nil, err
			}
			leave := func() { _ = db.Close() }
			tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
			if err != nil {
				leave()
			}
			return tx, leave, err
		},
		End: func(_ context.Context, tx *sql.Tx, commit bool) error {
			if commit {
				return tx.Commit()
			}
			return tx.Rollback()
		},
		Exec: func(ctx context.Context, tx *sql.Tx, query string) error {
			_, err := tx.ExecContext(ctx, query)
			return err
		},
		Query: func(ctx context.Context, tx *sql.Tx, query string) (text string, err error) {
			var value sql.NullString
			err = tx.QueryRowContext(ctx, query).Scan(&value)
			return value.String, err
		},
	}
}

// Trips is one of two numbers of round trips: together, where the statements of a lock travel
// together, else apart.
func (c Client[Tx]) Trips(together, apart int) int {
	if strings.HasPrefix(c.Name, "pgxpool") || strings.HasSuffix(c.Name, ".Open") {
		return together
	}
	return apart
}

// PgxOnPool is pgx on the caller's pool, in its usual mode or in another.
func PgxOnPool(mode string) Client[pgx.Tx] {
	c := pgxClient
	c.Name = "pgxpool"
	if mode != "" {
		c.Name += " " + mode
	}
	c.Connect = func(t *testing.T, dsn string, size int) (dialects.Driver[pgx.Tx], pool) {
		config := must.Get(pgxpool.ParseConfig(dsn))(t)
		if size > 0 {
			config.MaxConns = int32(size)
		}
		switch mode {
		case "simple protocol":
			config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		case "cache describe":
			config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
		p := must.Get(pgxpool.NewWithConfig(context.Background(), config))(t)
		return postgres.New(p), pool{
			Close: p.Close,
			InUse: func() int { return int(p.Stat().AcquiredConns()) },
			Open:  func() int { return int(p.Stat().TotalConns()) },
		}
	}
	return c
}

// PgxOpened is pgx on a pool of the library's own.
func PgxOpened() Client[pgx.Tx] {
	c := pgxClient
	c.Name = "postgres.Open"
	c.open = func(dsn string, size int) (dialects.Driver[pgx.Tx], error) {
		return postgres.Open(background, servers.WithPool(dsn, size))
	}
	c.Connect = opened(c.open)
	return c
}

// SQLFromPool is a sql.DB on a pgxpool.Pool of the caller's, which keeps the connections.
func SQLFromPool() Client[*sql.Tx] {
	c := sqlClient(named("pgx"))
	c.Name = "sql.DB from pool"
	c.Connect = func(t *testing.T, dsn string, size int) (dialects.Driver[*sql.Tx], pool) {
		config := must.Get(pgxpool.ParseConfig(dsn))(t)
		if size > 0 {
			config.MaxConns = int32(size)
		}
		p := must.Get(pgxpool.NewWithConfig(context.Background(), config))(t)
		db := stdlib.OpenDBFromPool(p)
		db.SetMaxOpenConns(size)
		return postgres.NewSQL(db), pool{
			Close: func() { _ = db.Close(); p.Close() },
			InUse: func() int { return int(p.Stat().AcquiredConns()) },
			Open:  func() int { return int(p.Stat().TotalConns()) },
			DB:    db,
		}
	}
	return c
}

// named opens a sql.DB of a registered driver.
func named(driverName string) func(dsn string) (*sql.DB, error) {
	return func(dsn string) (*sql.DB, error) { return sql.Open(driverName, dsn) }
}

// SQLOnPool is a caller's sql.DB, as open opens it.
func SQLOnPool(name string, open func(dsn string) (*sql.DB, error),
	newDriver func(*sql.DB) dialects.Driver[*sql.Tx],
) Client[*sql.Tx] {
	c := sqlClient(open)
	c.Name = name
	c.Connect = func(t *testing.T, dsn string, size int) (dialects.Driver[*sql.Tx], pool) {
		db := must.Get(open(dsn))(t)
		if size > 0 {
			db.SetMaxOpenConns(size)
			db.SetMaxIdleConns(size)
		}
		return newDriver(db), pool{
			Close: func() { _ = db.Close() },
			InUse: func() int { return db.Stats().InUse },
			Open:  func() int { return db.Stats().OpenConnections },
			DB:    db,
		}
	}
	return c
}

// MySQLOpened is a pool of the library's own.
func MySQLOpened() Client[*sql.Tx] {
	c := sqlClient(named("mysql"))
	c.Name = "mysql.Open"
	c.open = func(dsn string, size int) (dialects.Driver[*sql.Tx], error) {
		return mysql.Open(background, servers.WithPool(dsn, size))
	}
	c.Connect = opened(c.open)
	return c
}

func opened[Tx any](open func(dsn string, size int) (dialects.Driver[Tx], error)) func(*testing.T, string, int) (
	dialects.Driver[Tx], pool) {
	return func(t *testing.T, dsn string, size int) (dialects.Driver[Tx], pool) {
		driver := must.Get(open(dsn, size))(t)
		return driver, pool{Close: func() { _ = driver.Close() }}
	}
}

// The clients of each database: every guarantee holds for every one of them.
var (
	PostgresPgx = []Client[pgx.Tx]{PgxOnPool(""), PgxOnPool("simple protocol"), PgxOpened()}
	PostgresSQL = []Client[*sql.Tx]{
		SQLOnPool("sql.DB", named("pgx"), func(db *sql.DB) dialects.Driver[*sql.Tx] { return postgres.NewSQL(db) }),
	}
	MySQLSQL = []Client[*sql.Tx]{
		SQLOnPool("sql.DB", named("mysql"), func(db *sql.DB) dialects.Driver[*sql.Tx] { return mysql.New(db) }),
		MySQLOpened(),
	}
)

// Lines calls one of its functions for each line of the table engine × client, or for the part of
// it that the tier takes. The short tier has two clients for each engine, of PostgreSQL for the
// newest version. The usual tier runs each client of PostgreSQL on one of its versions, but a
// sql.DB on a pgxpool.Pool, which is in the full tier alone, and all of MySQL and MariaDB. The full
// tier has two for each further version: a pool of the library's own, and a sql.DB of the caller's.
func Lines(onPgx func(*Engine, Client[pgx.Tx]), onSQL func(*Engine, Client[*sql.Tx])) {
	var postgres, mysql []*Engine
	for _, e := range Engines {
		switch {
		case e.Further && e.Postgres:
			onPgx(e, PgxOpened())
			onSQL(e, PostgresSQL[0])
		case e.Further:
			onSQL(e, MySQLOpened())
			onSQL(e, MySQLSQL[0])
		case e.Postgres:
			postgres = append(postgres, e)
		default:
			mysql = append(mysql, e)
		}
	}
	for v, e := range postgres {
		var all, spread []func()
		for _, c := range PostgresPgx {
			all = append(all, func() { onPgx(e, c) })
		}
		for _, c := range PostgresSQL {
			all = append(all, func() { onSQL(e, c) })
		}
		for i, line := range all {
			if (i+1)%len(postgres) == v {
				spread = append(spread, line)
			}
		}
		all = append(all, func() { onSQL(e, SQLFromPool()) })
		var two []func()
		if v == len(postgres)-1 {
			two = []func(){all[0], all[len(PostgresPgx)-1]}
		}
		call(tier.Pick(two, spread, all))
	}
	for _, e := range mysql {
		for _, c := range MySQLSQL {
			onSQL(e, c)
		}
	}
}

func call(lines []func()) {
	for _, line := range lines {
		line()
	}
}
