package txlock_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
)

// client is one way to reach an engine.
type client[Tx any] struct {
	name string
	// connect returns a driver with a pool of at most size connections, and what the test needs of
	// that pool.
	connect func(t *testing.T, dsn string, size int) (dialects.Driver[Tx], pool)
	open    func(dsn string, size int) (dialects.Driver[Tx], error) // the same for a pool of the library's own
	// start begins a caller's own transaction on a connection that belongs to it alone, and that
	// leave closes.
	start func(dsn string, level sql.IsolationLevel) (tx Tx, leave func(), err error)
	end   func(ctx context.Context, tx Tx, commit bool) error
	exec  func(ctx context.Context, tx Tx, query string) error
	query func(ctx context.Context, tx Tx, query string) (string, error)
}

// pool is a caller's pool as its tests look at it.
type pool struct {
	close func()
	inUse func() int
	open  func() int
	db    *sql.DB // where it is one
}

// begin is start for a test that goes on with the transaction.
func (c client[Tx]) begin(t *testing.T, dsn string, level sql.IsolationLevel) Tx {
	t.Helper()
	tx, leave, err := c.start(dsn, level)
	require.NoError(t, err)
	t.Cleanup(leave)
	return tx
}

var pgxClient = client[pgx.Tx]{
	start: func(dsn string, level sql.IsolationLevel) (pgx.Tx, func(), error) {
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
	end: func(ctx context.Context, tx pgx.Tx, commit bool) error {
		if commit {
			return tx.Commit(ctx)
		}
		return tx.Rollback(ctx)
	},
	exec: func(ctx context.Context, tx pgx.Tx, query string) error {
		_, err := tx.Exec(ctx, query)
		return err
	},
	query: func(ctx context.Context, tx pgx.Tx, query string) (text string, err error) {
		var value any
		err = tx.QueryRow(ctx, query).Scan(&value)
		return fmt.Sprint(value), err
	},
}

func sqlClient(driverName string) client[*sql.Tx] {
	return client[*sql.Tx]{
		start: func(dsn string, level sql.IsolationLevel) (*sql.Tx, func(), error) {
			db, err := sql.Open(driverName, dsn)
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
		end: func(_ context.Context, tx *sql.Tx, commit bool) error {
			if commit {
				return tx.Commit()
			}
			return tx.Rollback()
		},
		exec: func(ctx context.Context, tx *sql.Tx, query string) error {
			_, err := tx.ExecContext(ctx, query)
			return err
		},
		query: func(ctx context.Context, tx *sql.Tx, query string) (text string, err error) {
			var value sql.NullString
			err = tx.QueryRowContext(ctx, query).Scan(&value)
			return value.String, err
		},
	}
}

func pgxOnPool(mode string) client[pgx.Tx] {
	c := pgxClient
	c.name = "pgxpool"
	if mode != "" {
		c.name += " " + mode
	}
	c.connect = func(t *testing.T, dsn string, size int) (dialects.Driver[pgx.Tx], pool) {
		config, err := pgxpool.ParseConfig(dsn)
		require.NoError(t, err)
		config.MaxConns = int32(size)
		if mode != "" {
			config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		}
		p, err := pgxpool.NewWithConfig(context.Background(), config)
		require.NoError(t, err)
		return postgres.New(p), pool{
			close: p.Close,
			inUse: func() int { return int(p.Stat().AcquiredConns()) },
			open:  func() int { return int(p.Stat().TotalConns()) },
		}
	}
	return c
}

func pgxOpened() client[pgx.Tx] {
	c := pgxClient
	c.name = "postgres.Open"
	c.open = func(dsn string, size int) (dialects.Driver[pgx.Tx], error) {
		return postgres.Open(background, dsn+fmt.Sprintf("&pool_max_conns=%d", size))
	}
	c.connect = opened(c.open)
	return c
}

func sqlOnPool(driverName string, newDriver func(*sql.DB) dialects.Driver[*sql.Tx]) client[*sql.Tx] {
	c := sqlClient(driverName)
	c.name = "sql.DB"
	c.connect = func(t *testing.T, dsn string, size int) (dialects.Driver[*sql.Tx], pool) {
		db, err := sql.Open(driverName, dsn)
		require.NoError(t, err)
		db.SetMaxOpenConns(size)
		db.SetMaxIdleConns(size)
		return newDriver(db), pool{
			close: func() { _ = db.Close() },
			inUse: func() int { return db.Stats().InUse },
			open:  func() int { return db.Stats().OpenConnections },
			db:    db,
		}
	}
	return c
}

func mysqlOpened() client[*sql.Tx] {
	c := sqlClient("mysql")
	c.name = "mysql.Open"
	c.open = func(dsn string, _ int) (dialects.Driver[*sql.Tx], error) { return mysql.Open(background, dsn) }
	c.connect = opened(c.open)
	return c
}

func opened[Tx any](open func(dsn string, size int) (dialects.Driver[Tx], error)) func(*testing.T, string, int) (
	dialects.Driver[Tx], pool) {
	return func(t *testing.T, dsn string, size int) (dialects.Driver[Tx], pool) {
		driver, err := open(dsn, size)
		require.NoError(t, err)
		return driver, pool{close: func() { _ = driver.Close() }}
	}
}
