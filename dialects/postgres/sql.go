package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/peer"
)

// SQLDriver holds locks on connections of a sql.DB, in sessions that speak *sql.Tx.
type SQLDriver struct {
	db *sql.DB
}

var _ dialects.Driver[*sql.Tx] = (*SQLDriver)(nil)

// NewSQL returns a driver on the caller's db, which must be one of pgx's stdlib driver and stays
// the caller's: Close does not close it. A nil db, or one of another driver, is an error from the
// first call that can return one.
func NewSQL(db *sql.DB) *SQLDriver { return &SQLDriver{db: db} }

// System implements dialects.Driver.
func (d *SQLDriver) System() string { return "postgresql" }

// Begin implements dialects.Driver.
func (d *SQLDriver) Begin(ctx context.Context, request dialects.Request) (dialects.Session[*sql.Tx], int64, error) {
	conn, l, err := d.acquire(ctx)
	if err != nil {
		return nil, 0, err
	}
	s := &sqlSession{driver: d, line: l, conn: conn, mark: newMark()}
	token, err := s.begin(ctx, request)
	if errors.Is(err, errNoRun) {
		if err = s.lift(ctx, request.Fence); err == nil {
			token, err = s.begin(ctx, request)
		}
	}
	if err != nil {
		_ = conn.Close()
		return nil, 0, err
	}
	return s, token, nil
}

// begin leaves the connection outside a transaction, or closed, when it fails.
func (s *sqlSession) begin(ctx context.Context, request dialects.Request) (token int64, err error) {
	if err = s.beginTx(ctx); err == nil {
		var prelude script
		if request.Work { // the transaction of database/sql carries the guard, and the one behind it the lock
			s.guarded = true
			prelude = script{{sql: "set transaction read write"}, {sql: guardSQL}, {sql: chainSQL}}
		}
		token, err = s.line.await(ctx, request, owner, func(ctx context.Context, lock script) ([][]string, error) {
			if request.Work {
				lock = lock.marked(s.mark)
			}
			columns, err := s.run(ctx, append(prelude, lock...))
			return columns[min(len(prelude), len(columns)):], err
		})
	}
	if err == nil {
		return token, nil
	}
	clean, cancel := context.WithTimeout(detached(ctx), cleanUpTimeout)
	defer cancel()
	if s.rollback(clean) == nil {
		err = s.line.explain(clean, request, err)
	}
	return 0, err
}

func (s *sqlSession) beginTx(ctx context.Context) (err error) {
	// database/sql rolls back when the context of BeginTx ends: only while nothing is held may that
	// be ctx.
	life, abandon := context.WithCancel(detached(ctx))
	s.abandon = abandon
	outlive := context.AfterFunc(ctx, abandon)
	if s.tx, err = s.conn.BeginTx(life, &sql.TxOptions{Isolation: sql.LevelReadCommitted}); err != nil {
		if ended := ctx.Err(); ended != nil { // err says that life was cancelled, whatever ended ctx
			return ended
		}
		return err
	}
	if !outlive() {
		return ctx.Err()
	}
	return nil
}

// LockTx implements dialects.Driver. database/sql does not show the connection behind a *sql.Tx, so
// each statement is a round trip, and a wait is interrupted from another connection of db.
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
	_, err := l.guestLock(ctx, request, foreign)
	return err
}

// A backend is named by its number and its start, so that the wrong server, where a db is not the
// transaction's, or a number that was given out again, is not hit.
const (
	backendSQL = "select pid || ' ' || extract(epoch from backend_start) from pg_stat_activity where pid = " +
		"pg_backend_pid()"
	cancelSQL = "select pg_cancel_backend(pid) from pg_stat_activity where pid || ' ' || extract(epoch from " +
		"backend_start) = $1"
)

// cancel interrupts the statement of a backend from another connection, if the pool has one to
// give.
func (d *SQLDriver) cancel(ctx context.Context, backend string) error {
	brief, stop := context.WithTimeout(ctx, dialects.PatienceWith(d.db))
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
func (d *SQLDriver) Install(ctx context.Context, layout dialects.Layout) (installed int, err error) {
	err = d.withLine(ctx, func(l line) (err error) {
		installed, err = l.install(ctx, layout)
		return err
	})
	return installed, err
}

// Schema implements dialects.Driver.
func (d *SQLDriver) Schema(layout dialects.Layout) (string, error) { return schemaText(layout) }

// MinLease implements dialects.Driver. The server's timer counts milliseconds.
func (d *SQLDriver) MinLease() time.Duration { return time.Millisecond }

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
	for {
		conn, err := d.db.Conn(ctx)
		if stats := d.db.Stats(); err != nil && ctx.Err() != nil && stats.MaxOpenConnections > 0 {
			return nil, line{}, fmt.Errorf("no connection from the pool in time, %d of %d are in use: %w", stats.InUse,
				stats.MaxOpenConnections, err)
		}
		if err != nil {
			return nil, line{}, fmt.Errorf("connect: %w", err)
		}
		var pgxConn *pgx.Conn
		if err := raw(conn, func(c *pgx.Conn) error { pgxConn = c; return nil }); err != nil {
			_ = conn.Close()
			return nil, line{}, err
		}
		if !peer.Gone(pgxConn.PgConn().Conn()) {
			return conn, lineOfSQL(conn, pgxConn), nil
		}
		destroy(conn) // it died while it was idle: the server was restarted, say
		_ = conn.Close()
	}
}

func lineOfSQL(conn *sql.Conn, pgxConn *pgx.Conn) line {
	return line{
		run: func(ctx context.Context, s script) (columns [][]string, err error) {
			err = raw(conn, func(c *pgx.Conn) (err error) {
				columns, _, err = send(ctx, c, nil, s)
				return err
			})
			return columns, err
		},
		// safe beside a running statement
		interrupt: func(ctx context.Context) error { return pgxConn.PgConn().CancelRequest(ctx) },
	}
}

// destroy has conn closed, instead of going back to the pool, when it is given back.
func destroy(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
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
