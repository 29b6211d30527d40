package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/peer"
)

// pgxPool is a pool of pgx connections.
type pgxPool struct {
	*pgxpool.Pool
	owned bool // opened by the driver
}

// PGX is a pool of pgx connections. Owned says that the library has opened it, and closes it.
func PGX(pool *pgxpool.Pool, owned bool) Pool[pgx.Tx] { return pgxPool{pool, owned} }

// fromPoolWithin is how long somebody who asks the server about another session waits for a
// connection.
const fromPoolWithin = 200 * time.Millisecond

func (p pgxPool) Ready() error {
	if p.Pool == nil {
		return errors.New("nil pool: give postgres.New a *pgxpool.Pool")
	}
	return nil
}

func (p pgxPool) Size() int { return int(p.Config().MaxConns) }

func (p pgxPool) Acquire(ctx context.Context) (Conn[pgx.Tx], error) {
	for dead := 0; ; dead++ {
		pooled, err := p.Pool.Acquire(ctx)
		if err != nil && ctx.Err() != nil {
			stat := p.Stat()
			return nil, fmt.Errorf("no connection from the pool in time, %d of %d are in use: %w",
				stat.AcquiredConns(), stat.MaxConns(), err)
		}
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		k := keptOf(pooled.Conn(), p)
		c := &pooledPgx{kept: k, pooled: pooled}
		if !(peer.Conn{Conn: k.line.Socket}).Gone() {
			if err = unfit(k.conn); err != nil {
				c.GiveBack()
			}
			return c, err
		}
		c.Destroy()
		c.GiveBack()
		if dead == mayBeDead(p.Size()) {
			return nil, fmt.Errorf("connect: %w", errDead)
		}
	}
}

// mayBeDead bounds how many connections that died while they were idle a call takes from a pool of
// that size, or with another one below it. Each is closed, so none is taken twice.
func mayBeDead(size int) int { return max(size, 100) }

// ErrRowsOpen says that nothing can be sent, and nothing is lost.
var ErrRowsOpen = errors.New("rows of a query in the same transaction are still open: read them to the end, or close " +
	"them, first")

var errDead = errors.New("the server has ended one connection of the pool after the other")

func (p pgxPool) In(ctx context.Context, tx pgx.Tx, _ bool) (Line, error) {
	if pooled, ok := tx.(*pgxpool.Tx); tx == nil || ok && pooled == nil || tx.Conn() == nil {
		return Line{}, errors.New("nil transaction")
	}
	// Once the transaction has ended, its connection is somebody else's.
	open := func() error { return tx.SendBatch(context.WithoutCancel(ctx), &pgx.Batch{}).Close() }
	if err := open(); err != nil {
		return Line{}, err
	}
	if tx.Conn().PgConn().IsBusy() {
		return Line{}, ErrRowsOpen
	}
	if err := unfit(tx.Conn()); err != nil {
		return Line{}, err
	}
	c := *keptOf(tx.Conn(), p).pgxConn
	c.through = tx
	c.alone = func(work func() error) error {
		if err := open(); err != nil {
			return err
		}
		return work()
	}
	l := c.lineTo(p)
	l.Cut, l.Socket = nil, nil
	return l, nil
}

// ask implements elsewhere. The credentials of a known connection may have expired: the pool's hook
// gives new ones.
func (p pgxPool) ask(ctx context.Context, _ *pgx.Conn, s sqltext.Statement) error {
	brief, cancel := context.WithTimeout(ctx, fromPoolWithin)
	defer cancel()
	if stat := p.Stat(); stat.AcquiredConns() < stat.MaxConns() {
		if conn, err := p.Pool.Acquire(brief); err == nil {
			defer conn.Release()
			// Outside a transaction, a pooler may execute what somebody else has prepared.
			_, err = conn.Exec(ctx, s.Sent(), append([]any{pgx.QueryExecModeSimpleProtocol}, s.Values()...)...)
			return err
		}
	}
	config := p.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return err
		}
	}
	return askAlone(ctx, config.ConnConfig, s)
}

func (p pgxPool) Close() {
	if p.owned {
		p.Pool.Close()
	}
}

// pooledPgx is a connection of a pgxPool.
type pooledPgx struct {
	*kept
	pooled *pgxpool.Conn
	begun  pgx.BatchResults // has the handle of the transaction; nil: no work runs in it
}

func (c *pooledPgx) Line() Line { return c.line }

func (c *pooledPgx) Begin(ctx context.Context, mark string, s sqltext.Script) ([][]string, error) {
	columns, err := c.begin(ctx, mark, s)
	if err == nil && mark != "" {
		c.begun = handleOf(c.conn)
	}
	return columns, err
}

func (c *pooledPgx) Tx() pgx.Tx { return workTx{c.begun.Tx()} }

func (c *pooledPgx) Commit(ctx context.Context, mark string, behind ...sqltext.Statement) error {
	_, err := c.commit(ctx, mark, behind...)
	if err == nil && c.Status() != Idle {
		c.Destroy()
		err = dialects.Lost(errors.New("the server has not ended the transaction"))
	}
	return err
}

func (c *pooledPgx) Rollback(ctx context.Context) error {
	if c.Status() == Idle {
		return nil
	}
	return c.Exec(ctx, "rollback")
}

func (c *pooledPgx) Destroy() { _ = c.conn.Close(over) }

// over is a context that has ended: nothing is sent in it.
var over, _ = context.WithDeadline(context.Background(), time.Time{})

// GiveBack closes a connection that is still in a transaction, as Release does.
func (c *pooledPgx) GiveBack() {
	if c.begun != nil {
		if c.Status() != Idle {
			c.Destroy()
		}
		_ = c.begun.Close()
	}
	c.pooled.Release()
}
