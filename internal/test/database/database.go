// Package database has what tests do with a database/sql again and again. Whatever fails there
// fails the test.
package database

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/must"
)

// Session is a pool, a connection or a transaction.
type Session interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Open is a pool that is closed when the test ends.
func Open(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db := must.Get(sql.Open(driver, dsn))(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// Exec runs a statement.
func Exec(t testing.TB, on Session, query string, args ...any) {
	t.Helper()
	_, err := on.ExecContext(context.Background(), query, args...)
	require.NoError(t, err, query)
}

// Begin begins a transaction with a statement. It is rolled back when the test
// ends, unless it has ended.
func Begin(t testing.TB, db *sql.DB, query string) *sql.Tx {
	t.Helper()
	tx := must.Get(db.Begin())(t)
	t.Cleanup(func() { _ = tx.Rollback() })
	Exec(t, tx, query)
	return tx
}

// Column is what a query of one column returns.
func Column[T any](t testing.TB, on Session, query string, args ...any) (values []T) {
	t.Helper()
	rows := must.Get(on.QueryContext(context.Background(), query, args...))(t)
	defer rows.Close()
	for rows.Next() {
		var value T
		require.NoError(t, rows.Scan(&value))
		values = append(values, value)
	}
	require.NoError(t, rows.Err())
	return values
}
