// Package postgres holds locks in PostgreSQL, tested on 15 and 18, through jackc/pgx/v5: on a
// pgxpool.Pool ([New], [Open]) or on a sql.DB of pgx's stdlib driver ([NewSQL]). While a
// transaction of txlock's lasts, its session shows what is locked behind the name of its
// application in pg_stat_activity.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/peer"
)

// Driver holds locks on connections of a pgxpool.Pool, in sessions that speak pgx.Tx.
type Driver struct {
	pool  *pgxpool.Pool
	owned bool
}

var _ dialects.Driver[pgx.Tx] = (*Driver)(nil)

// New returns a driver on the caller's pool, which stays the caller's: Close does not close it. The
// pool's query execution mode is respected. A nil pool is an error from the first call that can
// return one.
func New(pool *pgxpool.Pool) *Driver { return &Driver{pool: pool} }

// Open returns a driver with a pool of its own, and reaches the server once. dsn is a URL or a
// keyword string as pgxpool.ParseConfig takes it, pool_max_conns and the other pool settings
// included. Sessions carry the application name "txlock" unless dsn has another. Close closes the
// pool. After an error nothing is left open.
func Open(ctx context.Context, dsn string) (*Driver, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("txlock: open PostgreSQL: %w", err)
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "txlock"
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("txlock: open PostgreSQL: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("txlock: open PostgreSQL: %w", err)
	}
	return &Driver{pool: pool, owned: true}, nil
}

// System implements dialects.Driver.
func (d *Driver) System() string { return "postgresql" }

// Begin implements dialects.Driver. BEGIN and the locking statements travel together.
func (d *Driver) Begin(ctx context.Context, request dialects.Request) (dialects.Session[pgx.Tx], int64, error) {
	conn, err := d.acquire(ctx)
	if err != nil {
		return nil, 0, err
	}
	s := &session{driver: d, conn: conn, line: lineOf(conn.Conn(), conn.Conn()), mark: newMark(), guarded: request.Work}
	token, err := s.begin(ctx, request)
	if errors.Is(err, errNoRun) {
		if err = s.lift(ctx, request.Fence); err == nil {
			token, err = s.begin(ctx, request)
		}
	}
	if err != nil {
		conn.Release()
		return nil, 0, err
	}
	return s, token, nil
}

// begin leaves the connection outside a transaction, or closed, when it fails.
func (s *session) begin(ctx context.Context, request dialects.Request) (token int64, err error) {
	options := pgx.TxOptions{BeginQuery: beginSQL, CommitQuery: commitSQL(s.mark)}
	var prelude script
	if request.Work {
		prelude = script{{sql: guardSQL}, {sql: chainSQL}}
	}
	token, err = s.line.await(ctx, request, owner, func(ctx context.Context, lock script) ([][]string, error) {
		if request.Work {
			lock = lock.marked(s.mark)
		}
		columns, tx, err := send(ctx, s.conn.Conn(), &options, append(prelude, lock...))
		s.tx = tx
		return columns[min(len(prelude), len(columns)):], err
	})
	if err == nil {
		return token, nil
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	if s.rollback(clean) == nil {
		err = s.line.explain(clean, request, err)
	}
	return 0, err
}

// LockTx implements dialects.Driver.
func (d *Driver) LockTx(ctx context.Context, tx pgx.Tx, request dialects.Request) error {
	if tx == nil || tx.Conn() == nil {
		return errors.New("nil transaction")
	}
	// through tx: once it has ended, its connection is somebody else's
	_, err := lineOf(tx, tx.Conn()).guestLock(ctx, request, foreign)
	return err
}

// Slots implements dialects.Driver.
func (d *Driver) Slots(ctx context.Context, table string) (slots int, err error) {
	err = d.withLine(ctx, func(l line) (err error) {
		slots, err = l.slots(ctx, table)
		return err
	})
	return slots, err
}

// Install implements dialects.Driver.
func (d *Driver) Install(ctx context.Context, layout dialects.Layout) (installed int, err error) {
	err = d.withLine(ctx, func(l line) (err error) {
		installed, err = l.install(ctx, layout)
		return err
	})
	return installed, err
}

// Schema implements dialects.Driver.
func (d *Driver) Schema(layout dialects.Layout) (string, error) { return schemaText(layout) }

// MinLease implements dialects.Driver. The server's timer counts milliseconds.
func (d *Driver) MinLease() time.Duration { return time.Millisecond }

// Check implements dialects.Driver.
func (d *Driver) Check(ctx context.Context, table string) error {
	return check(ctx, table, d.withLine)
}

// Close implements dialects.Driver: it closes the pool of Open, and waits for its connections to
// come back.
func (d *Driver) Close() error {
	if d != nil && d.owned {
		d.pool.Close()
	}
	return nil
}

func (d *Driver) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if d == nil || d.pool == nil {
		return nil, errors.New("nil pool: give postgres.New a *pgxpool.Pool")
	}
	for {
		conn, err := d.pool.Acquire(ctx)
		if err != nil && ctx.Err() != nil {
			stat := d.pool.Stat()
			return nil, fmt.Errorf("no connection from the pool in time, %d of %d are in use: %w", stat.AcquiredConns(),
				stat.MaxConns(), err)
		}
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		if !peer.Gone(conn.Conn().PgConn().Conn()) {
			return conn, nil
		}
		// It died while it was idle: the server was restarted, say. The pool has perhaps more of
		// the kind, and then new ones.
		_ = conn.Conn().Close(ctx)
		conn.Release()
	}
}

// withLine runs work on a connection of the pool, which must be outside a transaction afterwards or
// is closed.
func (d *Driver) withLine(ctx context.Context, work func(line) error) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // closes a connection that is in a transaction
	return work(lineOf(conn.Conn(), conn.Conn()))
}
