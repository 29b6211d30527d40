package client

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"sync/atomic"

	"github.com/txlock/txlock/dialects/internal/wrapped"
)

// single is a connection of a driver's as a sql.DB of its own.
type single struct{ wrapped.Statements }

// Connect implements driver.Connector.
func (s single) Connect(context.Context) (sqldriver.Conn, error) { return s, nil }

// Driver implements driver.Connector. Nobody asks for it.
func (s single) Driver() sqldriver.Driver { return nil }

// Close implements driver.Conn. The connection is closed where it comes from.
func (s single) Close() error { return nil }

// lent is a connection of a sql.DB in a transaction of ours. It presents that transaction as a
// *sql.Tx, by a sql.DB of its own with this one connection. In the caller's sql.DB, to begin and to
// commit would each cost a round trip of their own. Statements go through what the caller has
// wrapped around the connection; BEGIN, COMMIT and ROLLBACK do not.
type lent struct {
	single
	db     *sql.DB
	direct channel     // for who has the connection alone, as its Tx has
	over   atomic.Bool // the library ends the transaction; what the *sql.Tx sends does not
}

// lend presents the transaction that is open on a connection, and the connection as another one to
// send through.
func lend(ctx context.Context, through wrapped.Statements, direct channel) (
	l *lent, pooled *sql.Conn, tx *sql.Tx, err error,
) {
	l = &lent{single: single{through}, direct: direct}
	l.db = sql.OpenDB(l)
	life := context.WithoutCancel(ctx) // at its end database/sql would roll back
	if pooled, err = l.db.Conn(life); err == nil {
		tx, err = pooled.BeginTx(life, nil)
	}
	return l, pooled, tx, err
}

// Connect implements driver.Connector.
func (l *lent) Connect(context.Context) (sqldriver.Conn, error) { return l, nil }

// BeginTx implements driver.ConnBeginTx. The transaction has begun before.
func (l *lent) BeginTx(context.Context, sqldriver.TxOptions) (sqldriver.Tx, error) { return l, nil }

// ended refuses a statement behind the end of the transaction, as openTx does.
func (l *lent) ended() error {
	if l.direct.Shown() == Idle {
		return sql.ErrTxDone
	}
	return nil
}

// PrepareContext implements driver.ConnPrepareContext.
func (l *lent) PrepareContext(ctx context.Context, query string) (sqldriver.Stmt, error) {
	if err := l.ended(); err != nil {
		return nil, err
	}
	return l.Statements.PrepareContext(ctx, query)
}

// ExecContext implements driver.ExecerContext.
func (l *lent) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	if err := l.ended(); err != nil {
		return nil, err
	}
	return l.Statements.ExecContext(ctx, query, args)
}

// QueryContext implements driver.QueryerContext.
func (l *lent) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if err := l.ended(); err != nil {
		return nil, err
	}
	return l.Statements.QueryContext(ctx, query, args)
}

// Commit implements driver.Tx, for work that commits by itself. What it sends afterwards is
// refused; see ended.
func (l *lent) Commit() error { return l.direct.commitAlone(context.Background()) }

// Rollback implements driver.Tx.
func (l *lent) Rollback() error {
	if l.over.Load() {
		return nil
	}
	return l.direct.Exec(context.Background(), "rollback")
}
