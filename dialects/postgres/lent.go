package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// lent is a connection of a sql.DB in a transaction of ours. It presents that transaction as a
// *sql.Tx, by a sql.DB of its own with this one connection. In the caller's sql.DB, to begin and to
// commit would each cost a round trip of their own.
type lent struct {
	stdlibConn
	db   *sql.DB
	over atomic.Bool // the library ends the transaction; what the *sql.Tx sends does not
}

// stdlibConn is what sessions use of a connection of pgx's stdlib driver, or of what a program has
// wrapped around one.
type stdlibConn interface {
	Conn() *pgx.Conn
	sqldriver.Conn
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.NamedValueChecker
}

var _ stdlibConn = (*stdlib.Conn)(nil)

// stdlibConnOf is an error for a connection of another driver.
func stdlibConnOf(driverConn any) (stdlibConn, error) {
	conn, ok := driverConn.(stdlibConn)
	if !ok {
		return nil, fmt.Errorf("postgres.NewSQL needs a database of pgx's stdlib driver, not of %T", driverConn)
	}
	return conn, nil
}

// lend presents the transaction that is open on conn. What the library sends goes through pooled
// from now on, so that database/sql keeps it apart from what tx sends.
func lend(ctx context.Context, conn stdlibConn) (l *lent, pooled *sql.Conn, tx *sql.Tx, err error) {
	l = &lent{stdlibConn: conn}
	l.db = sql.OpenDB(l)
	life := context.WithoutCancel(ctx) // at its end database/sql would roll back
	if pooled, err = l.db.Conn(life); err == nil {
		tx, err = pooled.BeginTx(life, nil)
	}
	return l, pooled, tx, err
}

// Connect implements driver.Connector.
func (l *lent) Connect(context.Context) (sqldriver.Conn, error) { return l, nil }

// Driver implements driver.Connector.
func (l *lent) Driver() sqldriver.Driver { return stdlib.GetDefaultDriver() }

// BeginTx implements driver.ConnBeginTx. The transaction has begun before.
func (l *lent) BeginTx(context.Context, sqldriver.TxOptions) (sqldriver.Tx, error) { return l, nil }

// Close implements driver.Conn. The connection is closed where it comes from.
func (l *lent) Close() error { return nil }

// Commit implements driver.Tx, for work that commits by itself. What it sends afterwards is read
// only; see guardSQL.
func (l *lent) Commit() error {
	tag, err := l.Conn().Exec(context.Background(), "commit")
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return err
}

// Rollback implements driver.Tx.
func (l *lent) Rollback() error {
	if l.over.Load() {
		return nil
	}
	_, err := l.Conn().Exec(context.Background(), "rollback")
	return err
}
