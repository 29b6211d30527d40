package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/txlock/txlock/dialects"
)

// SQLDriver holds locks on connections of a sql.DB, in sessions that speak *sql.Tx.
type SQLDriver struct {
	db *sql.DB
}

var _ dialects.Driver[*sql.Tx] = (*SQLDriver)(nil)

// NewSQL returns a driver on the caller's db, which must be one of pgx's stdlib driver and stays the caller's: Close
// does not close it. A nil db, or one of another driver, is an error from the first call that can return one.
func NewSQL(db *sql.DB) *SQLDriver { return &SQLDriver{db: db} }

// Begin implements dialects.Driver.
func (d *SQLDriver) Begin(ctx context.Context, request dialects.Request) (dialects.Session[*sql.Tx], error) {
	conn, l, err := d.acquire(ctx)
	if err != nil {
		return nil, err
	}
	s := &sqlSession{line: l, conn: conn, mark: newMark()}
	if err = s.begin(ctx, request); err == nil {
		return s, nil
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	if s.rollback(clean) == nil {
		err = l.explain(clean, request, err)
	}
	_ = conn.Close()
	return nil, err
}

func (s *sqlSession) begin(ctx context.Context, request dialects.Request) (err error) {
	var prelude script
	if request.Work {
		s.guarded = true
		if _, err := s.run(ctx, script{{sql: guardSQL}}); err != nil {
			return err
		}
		prelude = script{{markSQL, []any{s.mark}}}
	}
	// database/sql rolls back when the context of BeginTx ends: only while nothing is held may that be ctx.
	life, abandon := context.WithCancel(detached(ctx))
	s.abandon = abandon
	outlive := context.AfterFunc(ctx, abandon)
	if s.tx, err = s.conn.BeginTx(life, &sql.TxOptions{Isolation: sql.LevelReadCommitted}); err != nil {
		return err
	}
	if request.Work { // database/sql cannot say it in BEGIN; alone, because preparing a query takes a snapshot already
		if _, err := s.run(ctx, script{{sql: "set transaction read write"}}); err != nil {
			return err
		}
	}
	if !outlive() {
		return ctx.Err()
	}
	return s.line.await(ctx, request, false, func(ctx context.Context, lock script) ([][]string, error) {
		columns, err := s.run(ctx, append(prelude, lock...))
		return columns[min(len(prelude), len(columns)):], err
	})
}

// LockTx implements dialects.Driver. database/sql does not show the connection behind a *sql.Tx, so each statement is a
// round trip, and a wait is interrupted from another connection of db.
func (d *SQLDriver) LockTx(ctx context.Context, tx *sql.Tx, request dialects.Request) error {
	if err := d.ready(); err != nil {
		return err
	}
	if tx == nil {
		return errors.New("nil transaction")
	}
	l := line{run: func(ctx context.Context, s script) ([][]string, error) { return runOne(ctx, tx, s) }}
	if ctx.Done() != nil && !request.Try {
		clean, cancel := context.WithTimeout(detached(ctx), cleanUpTimeout) // pgx closes the connection when ctx ends
		backend, err := l.run(clean, script{{sql: backendSQL}})
		cancel()
		if err != nil {
			return err
		}
		l.interrupt = func(ctx context.Context) error { return d.cancel(ctx, backend[0][0]) }
	}
	return l.guestLock(ctx, request, true)
}

// A backend is named by its number and its start, so that the wrong server, where a db is not the transaction's, or a
// number that was given out again, is not hit.
const (
	backendSQL = "select pid || ' ' || extract(epoch from backend_start) from pg_stat_activity where pid = pg_backend_pid()"
	cancelSQL  = "select pg_cancel_backend(pid) from pg_stat_activity where pid || ' ' || extract(epoch from backend_start) = $1"
)

// cancel interrupts the statement of a backend from another connection, if the pool has one to give.
func (d *SQLDriver) cancel(ctx context.Context, backend string) error {
	brief, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	conn, err := d.db.Conn(brief)
	if err != nil {
		return dialects.ErrNoInterrupt
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

// Slots implements dialects.Driver.
func (d *SQLDriver) Slots(ctx context.Context, table string) (slots int, err error) {
	err = d.withLine(ctx, func(l line) (err error) {
		slots, err = l.slots(ctx, table)
		return err
	})
	return slots, err
}

// Install implements dialects.Driver.
func (d *SQLDriver) Install(ctx context.Context, table string, slots int) (installed int, err error) {
	err = d.withLine(ctx, func(l line) (err error) {
		installed, err = l.install(ctx, table, slots)
		return err
	})
	return installed, err
}

// Schema implements dialects.Driver.
func (d *SQLDriver) Schema(table string, slots int) (string, error) { return schemaText(table, slots) }

// Check implements dialects.Driver.
func (d *SQLDriver) Check(ctx context.Context, table string) error {
	return check(ctx, table, d.withLine)
}

// Close implements dialects.Driver. It does nothing: db is the caller's.
func (d *SQLDriver) Close() error { return nil }

func (d *SQLDriver) ready() error {
	if d == nil || d.db == nil {
		return errors.New("nil database: give postgres.NewSQL a *sql.DB")
	}
	return nil
}

func (d *SQLDriver) acquire(ctx context.Context) (*sql.Conn, line, error) {
	if err := d.ready(); err != nil {
		return nil, line{}, err
	}
	conn, err := d.db.Conn(ctx)
	if stats := d.db.Stats(); err != nil && ctx.Err() != nil && stats.MaxOpenConnections > 0 {
		return nil, line{}, fmt.Errorf("no connection from the pool in time, %d of %d are in use: %w", stats.InUse, stats.MaxOpenConnections, err)
	}
	if err != nil {
		return nil, line{}, fmt.Errorf("connect: %w", err)
	}
	var pgxConn *pgx.Conn
	if err := raw(conn, func(c *pgx.Conn) error { pgxConn = c; return nil }); err != nil {
		_ = conn.Close()
		return nil, line{}, err
	}
	return conn, line{
		run: func(ctx context.Context, s script) (columns [][]string, err error) {
			err = raw(conn, func(c *pgx.Conn) (err error) {
				columns, _, err = send(ctx, c, nil, s)
				return err
			})
			return columns, err
		},
		interrupt: func(ctx context.Context) error { return pgxConn.PgConn().CancelRequest(ctx) }, // safe beside a running statement
	}, nil
}

func (d *SQLDriver) withLine(ctx context.Context, work func(line) error) error {
	conn, l, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // stdlib closes a connection that is in a transaction when it is taken again
	return work(l)
}

// raw runs work on the pgx connection behind conn.
func raw(conn *sql.Conn, work func(*pgx.Conn) error) (err error) {
	rawErr := conn.Raw(func(driverConn any) error {
		c, ok := driverConn.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("postgres.NewSQL needs a database of pgx's stdlib driver, not of %T", driverConn)
		}
		err = work(c.Conn()) // not returned: database/sql would retry on what looks like a bad connection
		return nil
	})
	return errors.Join(rawErr, err)
}

// sqlSession is a connection of a sql.DB with its transaction.
type sqlSession struct {
	line
	conn       *sql.Conn
	tx         *sql.Tx
	abandon    context.CancelFunc // ends what tx is doing, by closing the connection
	mark       string             // the value that this transaction alone carries, once work runs in it
	guarded    bool               // the session's default is read only: work runs, or ran, in it
	savepoints int
}

func (s *sqlSession) Tx() *sql.Tx { return s.tx }

func (s *sqlSession) Join(ctx context.Context, request dialects.Request) error {
	if err := s.gone(); err != nil {
		return err
	}
	return s.line.guestLock(ctx, request, false)
}

func (s *sqlSession) Nest(ctx context.Context, work func(tx *sql.Tx) error) error {
	s.savepoints++
	name := "txlock_" + strconv.Itoa(s.savepoints)
	var begin script
	if !s.guarded {
		begin = script{{sql: guardSQL}, {markSQL, []any{s.mark}}}
		s.guarded = true
	}
	clean, cancel := context.WithTimeout(detached(ctx), cleanUpTimeout) // pgx closes the connection when ctx ends
	_, err := s.run(clean, append(begin, statement{sql: "savepoint " + name}))
	cancel()
	if err != nil {
		return lost(err)
	}
	done := false
	end := func(undo bool) error {
		done = true
		clean, cancel := context.WithTimeout(detached(ctx), cleanUpTimeout)
		defer cancel()
		if err := s.gone(); err != nil {
			return err
		}
		if undo {
			return lost(s.undo(clean, name))
		}
		_, err := s.run(clean, script{{sql: "release savepoint " + name}})
		return lost(err)
	}
	defer func() { // also when work panics
		if !done {
			_ = end(true) // what is wrong with the session shows in its end
		}
	}()
	err = work(s.tx)
	if err == nil && s.status() != 'E' {
		return end(false)
	}
	if err == nil {
		err = errAborted
	}
	return errors.Join(err, end(true))
}

func (s *sqlSession) Commit(ctx context.Context) error {
	defer s.conn.Close()
	if err := s.gone(); err != nil {
		return errors.Join(err, s.rollback(ctx))
	}
	if s.status() == 'E' {
		return errors.Join(errAborted, s.rollback(ctx))
	}
	proof := script{{"select 1 / (current_setting('txlock.held', true) is not distinct from $1)::int", []any{s.mark}}, {sql: unguardSQL}}
	if _, err := s.run(ctx, proof); err != nil {
		if sqlState(err) == divisionByZero {
			err = errors.New("the transaction that took the lock ended before its work did; what came after it is not committed")
		}
		return errors.Join(lost(err), s.rollback(ctx))
	}
	defer s.abandon()
	stop := context.AfterFunc(ctx, s.abandon)
	err := s.tx.Commit()
	stop()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return errors.Join(lost(err), s.rollback(ctx))
	case sqlState(err) != "" && s.status() != 0:
		return errors.Join(err, s.rollback(ctx)) // a deferred constraint, say: nothing is committed
	}
	return fmt.Errorf("%w: the connection broke during COMMIT, and whether it took place is unknown: %w", dialects.ErrLost, err)
}

func (s *sqlSession) Rollback(ctx context.Context) error {
	defer s.conn.Close()
	if err := s.gone(); err != nil {
		return errors.Join(err, s.rollback(ctx))
	}
	return lost(s.rollback(ctx))
}

// rollback ends whatever transaction is open and brings the session's settings back. A connection on which that cannot
// be confirmed is closed.
func (s *sqlSession) rollback(ctx context.Context) error {
	var err error
	if s.tx != nil {
		defer s.abandon()
		defer context.AfterFunc(ctx, s.abandon)()
		if err = s.tx.Rollback(); errors.Is(err, sql.ErrTxDone) {
			err = nil
		}
	}
	if err == nil && s.status() != 'I' { // the transaction's handle was closed by the caller, the transaction was not
		_, err = s.run(ctx, script{{sql: "rollback"}})
	}
	if err == nil && s.guarded {
		_, err = s.run(ctx, script{{sql: unguardSQL}})
	}
	if err != nil {
		_ = s.conn.Raw(func(any) error { return driver.ErrBadConn }) // closes it
	}
	return err
}

// status is the transaction status that the server last reported, 0 on a closed connection.
func (s *sqlSession) status() (status byte) {
	_ = raw(s.conn, func(c *pgx.Conn) error {
		if !c.IsClosed() {
			status = c.PgConn().TxStatus()
		}
		return nil
	})
	return status
}

// gone is an error when the transaction that took the locks has visibly ended.
func (s *sqlSession) gone() error {
	switch s.status() {
	case 0:
		return fmt.Errorf("%w: its connection is closed", dialects.ErrLost)
	case 'I':
		return fmt.Errorf("%w: its transaction was ended by a COMMIT or ROLLBACK of its work", dialects.ErrLost)
	}
	return nil
}
