package client

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/wrapped"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/peer"
)

// sqlPool is a pool of database/sql.
type sqlPool struct {
	*sql.DB
	// pgx says that its connections, as far as one was seen, are those of pgx's driver, not
	// wrapped: they take several statements in one text, and options.
	pgx     atomic.Bool
	several atomic.Pointer[bool] // its driver takes several statements in one query; nil until somebody asks
}

// SQL is a pool of database/sql, which stays its owner's.
func SQL(db *sql.DB) Pool[*sql.Tx] { return &sqlPool{DB: db} }

func (p *sqlPool) Ready() error {
	if p.DB == nil {
		return errors.New("nil database: give postgres.NewSQL a *sql.DB")
	}
	return nil
}

func (p *sqlPool) Size() int { return p.Stats().MaxOpenConnections }

func (p *sqlPool) Acquire(ctx context.Context) (Conn[*sql.Tx], error) {
	for left := mayBeDead(p.Stats().OpenConnections); ; left-- {
		conn, err := p.Conn(ctx)
		stats := p.Stats()
		if err != nil && ctx.Err() != nil && stats.MaxOpenConnections > 0 {
			return nil, fmt.Errorf("no connection from the pool in time, %d of %d are in use: %w",
				stats.InUse, stats.MaxOpenConnections, err)
		}
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		c := &sqlConn{pooled: conn, conn: conn}
		c.line, err = p.connect(ctx, c)
		gone := peer.Conn{Conn: c.line.Socket}.Gone()
		if err == nil && !gone {
			return c, nil
		}
		if gone && err == nil {
			err = errDead
		}
		dead := gone || server.Broken(err)
		if dead {
			c.Destroy()
		}
		c.GiveBack()
		if !dead || ctx.Err() != nil || left == 0 {
			return nil, fmt.Errorf("connect: %w", err)
		}
	}
}

// connect looks what c is below its wrappers: pgx's, or another driver's.
func (p *sqlPool) connect(ctx context.Context, c *sqlConn) (Line, error) {
	var below any
	err := c.conn.Raw(func(driverConn any) error {
		_, own := driverConn.(*stdlib.Conn)
		p.pgx.Store(own)
		for below = range wrapped.All(driverConn) {
			if _, ok := below.(pgxBelow); ok {
				break
			}
		}
		return nil
	})
	if err != nil {
		return Line{}, err
	}
	if conn, ok := below.(pgxBelow); ok {
		direct := keptOf(conn.Conn(), p).pgxConn
		through := *direct
		through.alone = c.alone
		c.channel, c.direct = &through, direct
		return through.lineTo(p), unfit(conn.Conn())
	}
	conn, ok := below.(sqldriver.Conn)
	if !ok {
		return Line{}, fmt.Errorf("bug: %T is no connection of a driver", below)
	}
	if c.plain, err = newPlainConn(conn, c.alone); err != nil {
		return Line{}, err
	}
	direct := *c.plain
	direct.alone = func(work func() error) error { return work() }
	c.channel, c.direct = c.plain, &direct
	return c.plain.lineTo(ctx, p)
}

// pgxBelow is a connection of pgx's stdlib driver, or a wrapper that shows what it wraps.
type pgxBelow interface{ Conn() *pgx.Conn }

// In serves LockTx. database/sql does not show the connection behind a *sql.Tx, so a wait is
// interrupted from another connection of the pool. What a savepoint is in front of travels with it
// in one query where the driver is pgx's, and shows no answers. Elsewhere the savepoint, a block
// with all between, and the release are a round trip each.
//
// What asks for answers runs statement by statement.
func (p *sqlPool) In(ctx context.Context, tx *sql.Tx, answers bool) (Line, error) {
	if tx == nil {
		return Line{}, errors.New("nil transaction")
	}
	run := func(ctx context.Context, s sqltext.Script) ([][]string, error) {
		return p.runOne(ctx, tx, s)
	}
	if answers {
		b := &backend{}
		return Line{send: run, backend: b, Interrupt: b.canceler(nil, p)}, nil
	}
	tag := newTag()
	return Line{
		Blind: true, Interrupt: interruptTagged(tag, p),
		send: func(ctx context.Context, s sqltext.Script) ([][]string, error) {
			if !s[0].Opens {
				return run(ctx, s)
			}
			return nil, p.fly(ctx, tx, s, tag)
		},
	}, nil
}

// fly sends a script that begins with a savepoint, and ends with its release.
func (p *sqlPool) fly(ctx context.Context, tx *sql.Tx, s sqltext.Script, tag string) error {
	text, err := s[1:].Text()
	// pg_stat_statements before 16 counts a SAVEPOINT by its text, with the comment.
	queries := []string{s[0].SQL + "; " + tag + text}
	if !p.pgx.Load() {
		last := len(s) - 1
		text, err = s[1:last].Block()
		queries = []string{s[0].SQL, tag + text, s[last].SQL}
	}
	for i := 0; i < len(queries) && err == nil; i++ {
		_, err = tx.ExecContext(ctx, queries[i])
	}
	return err
}

// ask has the server interrupt or end a session, from another connection, if the pool has one to
// give. The session stands in the text: with arguments, some drivers prepare the statement in a
// round trip of its own, and a pooler may then execute what somebody else has prepared.
func (p *sqlPool) ask(ctx context.Context, known *pgx.Conn, s sqltext.Statement) error {
	text, err := sqltext.Script{s}.Text()
	if err != nil {
		return err
	}
	brief, stop := context.WithTimeout(ctx, interrupt.PatienceWith(p.DB))
	defer stop()
	conn, err := p.Conn(brief)
	switch {
	case err != nil && known != nil: // a hook of the caller's for new connections cannot be found
		return askAlone(ctx, known.Config(), s)
	case err != nil:
		return cmp.Or(ctx.Err(), interrupt.ErrNoConnection) // the server is slow, or the pool is full
	}
	defer conn.Close()
	_, err = conn.ExecContext(ctx, text)
	return err
}

// runOne runs a script statement by statement. Arguments stand in the text: with arguments, drivers
// prepare the statement. Some take another round trip for that. And pgx keeps it, unless it is told
// not to.
func (p *sqlPool) runOne(ctx context.Context, tx *sql.Tx, s sqltext.Script) ([][]string, error) {
	var columns [][]string
	var options []any
	if p.pgx.Load() {
		options = []any{pgx.QueryExecModeExec}
	}
	for _, statement := range s {
		text, err := sqltext.Script{statement}.Text()
		if err != nil {
			return columns, err
		}
		results, err := firstColumnsOf(tx.QueryContext(ctx, text, options...))
		if err != nil {
			return columns, err
		}
		columns = append(columns, slices.Concat(results...))
	}
	return columns, nil
}

// firstColumnsOf reads the first column of each statement that returns rows.
func firstColumnsOf(rows *sql.Rows, err error) (columns [][]string, failed error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for more := true; more; more = rows.NextResultSet() {
		names, err := rows.Columns()
		if err != nil {
			return columns, err
		}
		var value sql.RawBytes
		row := []any{&value}
		for len(row) < len(names) {
			row = append(row, new(sql.RawBytes))
		}
		var column []string
		for rows.Next() {
			if err := rows.Scan(row...); err != nil {
				return columns, err
			}
			column = append(column, string(value))
		}
		if len(names) > 0 && (rows.Err() == nil || len(column) > 0) {
			columns = append(columns, column)
		}
	}
	return columns, rows.Err()
}

// Close does nothing: the pool is the caller's.
func (p *sqlPool) Close() {}
