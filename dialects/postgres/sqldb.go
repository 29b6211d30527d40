package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/internal/peer"
)

// sqlPool is a pool of database/sql.
type sqlPool struct{ *sql.DB }

func (p sqlPool) ready() error {
	if p.DB == nil {
		return errors.New("nil database: give postgres.NewSQL a *sql.DB")
	}
	return nil
}

func (p sqlPool) size() int { return p.Stats().MaxOpenConnections }

func (p sqlPool) acquire(ctx context.Context) (pooledConn[*sql.Tx], querier, error) {
	for {
		conn, err := p.Conn(ctx)
		if stats := p.Stats(); err != nil && ctx.Err() != nil && stats.MaxOpenConnections > 0 {
			return nil, querier{}, fmt.Errorf("no connection from the pool in time, %d of %d are in use: %w",
				stats.InUse, stats.MaxOpenConnections, err)
		}
		if err != nil {
			return nil, querier{}, fmt.Errorf("connect: %w", err)
		}
		c := &sqlConn{pooled: conn, conn: conn}
		c.pgxLink = pgxLink{c.use}
		q, err := c.querier()
		if err == nil && !peer.Gone(q.socket) {
			return c, q, nil
		}
		if err == nil {
			c.destroy(ctx)
		}
		c.giveBack()
		if err != nil {
			return nil, querier{}, err
		}
	}
}

// querierIn serves LockTx. database/sql does not show the connection behind a *sql.Tx, so each
// statement is a round trip, and a wait is interrupted from another connection of the pool.
func (p sqlPool) querierIn(ctx context.Context, tx *sql.Tx, request dialects.Request) (querier, error) {
	if tx == nil {
		return querier{}, errors.New("nil transaction")
	}
	q := querier{
		run:       func(ctx context.Context, s script) ([][]string, error) { return runOne(ctx, tx, s) },
		interrupt: func(context.Context) error { return interrupt.ErrNoConnection },
	}
	if request.Try {
		return q, nil
	}
	clean, cancel := interrupt.Detached(ctx) // pgx closes the connection when ctx ends
	defer cancel()
	backend, err := q.run(clean, script{{sql: backendSQL}})
	if broken(err) {
		err = lost(err)
	}
	if err == nil {
		q.interrupt = func(ctx context.Context) error { return p.cancel(ctx, backend[0][0]) }
	}
	return q, err
}

// A backend is named by its number and its start. Without the start, a number that was given out
// again, or the server of another db than the transaction's, would be hit.
const (
	backendSQL = "select pid || ' ' || extract(epoch from backend_start) from pg_stat_activity " +
		"where pid = pg_backend_pid()"
	cancelSQL = "select pg_cancel_backend(pid) from pg_stat_activity " +
		"where pid || ' ' || extract(epoch from backend_start) = $1"
)

// cancel interrupts the statement of a backend from another connection, if the pool has one to
// give.
func (p sqlPool) cancel(ctx context.Context, backend string) error {
	brief, stop := context.WithTimeout(ctx, interrupt.PatienceWith(p.DB))
	defer stop()
	conn, err := p.Conn(brief)
	if err != nil {
		return interrupt.ErrNoConnection
	}
	defer conn.Close()
	_, err = conn.ExecContext(ctx, cancelSQL, backend)
	return err
}

// runOne runs a script statement by statement.
func runOne(ctx context.Context, tx *sql.Tx, s script) ([][]string, error) {
	var columns [][]string
	for _, statement := range s {
		column, err := firstColumn(ctx, tx, statement)
		if err != nil {
			return columns, err
		}
		columns = append(columns, column)
	}
	return columns, nil
}

func firstColumn(ctx context.Context, tx *sql.Tx, statement statement) ([]string, error) {
	rows, err := tx.QueryContext(ctx, statement.sql, statement.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var value sql.RawBytes
	row := []any{&value}
	for len(row) < len(names) {
		row = append(row, new(sql.RawBytes))
	}
	var column []string
	for rows.Next() {
		if err := rows.Scan(row...); err != nil {
			return nil, err
		}
		column = append(column, string(value))
	}
	return column, rows.Err()
}

// close does nothing: the pool is the caller's.
func (p sqlPool) close() {}

// sqlConn is a connection of a sqlPool.
type sqlConn struct {
	pgxLink
	pooled *sql.Conn // of the caller's sql.DB
	conn   *sql.Conn // through which to send: pooled, or that of lent

	lent  *lent // nil without work
	begun *sql.Tx
}

func (c *sqlConn) lasting() *lasting { return nil }

func (c *sqlConn) use(work func(*pgx.Conn) error) (workErr error) {
	rawErr := c.conn.Raw(func(driverConn any) error {
		conn, err := stdlibConnOf(driverConn)
		if err != nil {
			return err
		}
		workErr = work(conn.Conn()) // not returned: database/sql would retry on what looks like a bad connection
		return nil
	})
	return errors.Join(rawErr, workErr)
}

// begin sends BEGIN and the script together.
func (c *sqlConn) begin(ctx context.Context, mark string, s script) (columns [][]string, err error) {
	err = c.use(func(conn *pgx.Conn) (err error) {
		columns, _, err = send(ctx, conn, nil, append(script{{sql: beginSQL}}, s...))
		return err
	})
	columns = columns[min(1, len(columns)):]
	if err == nil && mark != "" {
		err = c.present(ctx)
	}
	return columns, err
}

// present makes begun of the open transaction.
func (c *sqlConn) present(ctx context.Context) error {
	return c.conn.Raw(func(driverConn any) error {
		conn, err := stdlibConnOf(driverConn)
		if err == nil {
			c.lent, c.conn, c.begun, err = lend(ctx, conn)
		}
		return err
	})
}

func (c *sqlConn) tx() *sql.Tx { return c.begun }

// savepoint presents the whole transaction: database/sql knows no nested ones.
func (c *sqlConn) savepoint(ctx context.Context, name string) (*sql.Tx, func(context.Context) error, error) {
	release := func(ctx context.Context) error { return c.exec(ctx, "release savepoint "+name) }
	return c.begun, release, c.exec(ctx, "savepoint "+name)
}

func (c *sqlConn) commit(ctx context.Context, mark string, settled bool) error {
	if err := c.closeTx(); err != nil {
		return lost(err)
	}
	return c.use(func(conn *pgx.Conn) error {
		_, _, err := send(ctx, conn, nil, commitScript(mark, !settled))
		return err
	})
}

// closeTx closes the handle of the work, when the statements that run through it have ended. Its
// error says that the work has ended the transaction.
func (c *sqlConn) closeTx() error {
	if c.begun == nil {
		return nil
	}
	c.lent.over.Store(true)
	return c.begun.Rollback()
}

func (c *sqlConn) rollback(ctx context.Context) error {
	_ = c.closeTx()
	return c.use(func(conn *pgx.Conn) error {
		if conn.PgConn().TxStatus() == idle {
			return nil
		}
		_, err := conn.Exec(ctx, "rollback")
		return err
	})
}

func (c *sqlConn) destroy(context.Context) {
	_ = c.closeTx()
	_ = c.pooled.Raw(func(any) error { return sqldriver.ErrBadConn })
}

func (c *sqlConn) giveBack() {
	if c.lent != nil {
		_ = c.closeTx()
		_ = c.conn.Close()
		_ = c.lent.db.Close()
	}
	_ = c.pooled.Close()
}
