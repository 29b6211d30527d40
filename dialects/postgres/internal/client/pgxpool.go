package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
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

// FromPoolWithin is how long somebody who asks the server about another session waits for a
// connection.
const FromPoolWithin = 200 * time.Millisecond

func (p pgxPool) Ready() error {
	if p.Pool == nil {
		return errors.New("nil pool: give postgres.New a *pgxpool.Pool")
	}
	return nil
}

func (p pgxPool) Size() int { return int(p.Config().MaxConns) }

func (p pgxPool) Acquire(ctx context.Context) (Conn[pgx.Tx], Querier, error) {
	for {
		conn, err := p.Pool.Acquire(ctx)
		if err != nil && ctx.Err() != nil {
			stat := p.Stat()
			return nil, Querier{}, fmt.Errorf("no connection from the pool in time, %d of %d are in use: %w",
				stat.AcquiredConns(), stat.MaxConns(), err)
		}
		if err != nil {
			return nil, Querier{}, fmt.Errorf("connect: %w", err)
		}
		kept := keptOf(conn.Conn(), p)
		if p.owned && kept.lasting == nil && kept.told != "" {
			kept.lasting = &Lasting{pid: kept.told}
		}
		c := &pgxConn{pgxLink: kept.link, pooled: conn, Conn: conn.Conn(), kept: kept}
		if kept.prepared.isFresh() || !(peer.Conn{Conn: kept.querier.Socket}).Gone() {
			return c, kept.querier, nil
		}
		c.Destroy()
		c.GiveBack()
	}
}

func (p pgxPool) In(_ context.Context, tx pgx.Tx, _ dialects.Request) (Querier, error) {
	if tx == nil || tx.Conn() == nil {
		return Querier{}, errors.New("nil transaction")
	}
	b, past := backendOf(tx.Conn()), sendsPast(tx.Conn())
	// Through tx: once it has ended, its connection is somebody else's.
	q := Querier{Interrupt: b.interruptOf(tx.Conn(), p)}
	q.Run = func(ctx context.Context, s sqltext.Script) ([][]string, error) {
		return b.run(ctx, s, func(ctx context.Context, s sqltext.Script) ([][]string, error) {
			if past {
				return sendIn(ctx, tx, s, nil)
			}
			columns, _, err := send(ctx, tx, nil, s)
			return columns, err
		})
	}
	q.Flight = inTwo(q.Run)
	if past && b == nil {
		q.Flight = func(ctx context.Context, s sqltext.Script, safe func()) ([][]string, error) {
			return sendIn(ctx, tx, s, safe)
		}
	}
	return q, nil
}

// ask runs a statement on a connection of the pool, if it has one to give.
func (p pgxPool) ask(ctx context.Context, s sqltext.Statement) error {
	brief, cancel := context.WithTimeout(ctx, FromPoolWithin)
	defer cancel()
	if stat := p.Stat(); stat.AcquiredConns() >= stat.MaxConns() {
		return interrupt.ErrNoConnection
	}
	conn, err := p.Pool.Acquire(brief)
	if err != nil {
		return err
	}
	defer conn.Release()
	// Simple protocol: outside a transaction, a pooler may execute what somebody else has prepared.
	_, err = conn.Exec(ctx, s.SQL, append([]any{pgx.QueryExecModeSimpleProtocol}, s.Values()...)...)
	return err
}

// Alone implements Pool. The credentials of known may have expired: the pool's hook gives new ones.
func (p pgxPool) Alone(ctx context.Context, _ *pgx.Conn, ask sqltext.Statement) ([]string, error) {
	config := p.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	return askAlone(ctx, config.ConnConfig, ask)
}

func (p pgxPool) Close() {
	if p.owned {
		p.Pool.Close()
	}
}

// pgxConn is a connection of a pgxPool.
type pgxConn struct {
	pgxLink
	pooled *pgxpool.Conn
	*pgx.Conn
	kept  *kept
	begun pgx.Tx // the handle of the transaction; nil: there is none, or no work runs in it
}

// kept is what the library knows of a connection as long as the connection lives.
type kept struct {
	link     pgxLink
	querier  Querier
	told     string                       // as link says
	lasting  *Lasting                     // nil: the connection is the caller's
	prepared *prepared                    // nil: pgx sends everything
	handle   *pgconn.StatementDescription // of handleName, as pgx has it; nil before the first work
}

func keptOf(conn *pgx.Conn, pool elsewhere) *kept {
	const key = "txlock"
	data := conn.PgConn().CustomData()
	k, known := data[key].(*kept)
	if !known {
		mode, past, b := conn.Config().DefaultQueryExecMode, sendsPast(conn), backendOf(conn)
		byText := mode == pgx.QueryExecModeSimpleProtocol
		k = &kept{link: pgxLink{
			use:  func(work func(*pgx.Conn) error) error { return work(conn) },
			past: past, byText: byText, ahead: (!past || b != nil) && !byText && mode != pgx.QueryExecModeExec,
			backend: b, described: make(described),
		}}
		if k.link.past {
			k.prepared = &prepared{names: make(map[string]string)}
		}
		k.told = k.link.Told()
		k.querier, _ = k.link.querier(pool)
		data[key] = k
	}
	return k
}

func (c *pgxConn) Lasting() *Lasting { return c.kept.lasting }

func (c *pgxConn) CarriesWork(counted bool) bool { return counted || !c.kept.link.byText }

func (c *pgxConn) Told() string { return c.kept.told }

// Begin sends BEGIN and the script together.
func (c *pgxConn) Begin(ctx context.Context, mark string, s sqltext.Script) (columns [][]string, err error) {
	s = append(sqltext.Script{Begin}, s...)
	if s.Works() || !c.kept.prepared.serves(c.PgConn()) {
		columns, err = c.backend.run(ctx, s, func(ctx context.Context, s sqltext.Script) ([][]string, error) {
			return c.sendBatch(ctx, mark, s)
		})
		return columns[min(1, len(columns)):], err
	}
	if mark != "" {
		if err := c.kept.prepareHandle(ctx, c.Conn); err != nil {
			return nil, err
		}
	}
	columns, err = c.backend.run(ctx, s, func(ctx context.Context, s sqltext.Script) ([][]string, error) {
		return c.kept.sendPrepared(ctx, c.Conn, s)
	})
	if mark != "" && c.Status() != Idle {
		c.begun = handleOf(c.Conn, commitSQL(mark))
	}
	return columns[min(1, len(columns)):], err
}

// sendBatch leaves it to pgx to send a script.
func (c *pgxConn) sendBatch(ctx context.Context, mark string, s sqltext.Script) (columns [][]string, err error) {
	if !s[0].Opens {
		return c.send(ctx, s)
	}
	options := pgx.TxOptions{BeginQuery: BeginSQL}
	if mark != "" {
		options.CommitQuery = commitSQL(mark)
	}
	columns, c.begun, err = send(ctx, c.Conn, &options, s[1:])
	return append([][]string{nil}, columns...), err
}

func (k *kept) sendPrepared(ctx context.Context, conn *pgx.Conn, s sqltext.Script) ([][]string, error) {
	columns, err := k.prepared.send(ctx, conn.PgConn(), s)
	if errors.Is(err, server.ErrUnprepared) && !k.prepared.renew() {
		k.prepared = nil
	}
	return columns, err
}

// handleOf is pgx's handle of a transaction, or of a nested one, that was begun without pgx. It
// comes with a batch that begins one. This batch is not sent, because its context has ended.
func handleOf(conn *pgx.Conn, commit string) pgx.Tx {
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{BeginQuery: handleName, CommitQuery: commit})
	return conn.SendBatch(over, &batch).Tx()
}

// handleName is that of a statement which pgx knows, and which is never executed.
const handleName = "txlock_handle"

// prepareHandle takes a round trip at first, and when the caller has called DeallocateAll: then the
// statements of prepared are gone too.
func (k *kept) prepareHandle(ctx context.Context, conn *pgx.Conn) error {
	handle, err := conn.Prepare(ctx, handleName, BeginSQL)
	if err != nil {
		return err
	}
	if k.handle != nil && handle != k.handle {
		k.prepared.renew()
	}
	k.handle = handle
	return nil
}

// closeHandle closes the handle of a transaction that is over: by a Commit for which pgx sends
// nothing, because its context has ended.
func (c *pgxConn) closeHandle() {
	_ = c.begun.Commit(over)
	if err := c.begun.Commit(over); !errors.Is(err, pgx.ErrTxClosed) {
		c.Destroy() // what goes on to use the handle must not get at the connection of another
	}
}

func (c *pgxConn) Tx() pgx.Tx { return workTx{openTx{c.begun}} }

// Savepoint sets it a second time where pgx sends everything: that does no harm.
func (c *pgxConn) Savepoint(ctx context.Context, name, outer string) (
	nested pgx.Tx, release func(context.Context) error, err error,
) {
	begin, commit := "savepoint "+name, "release savepoint "+cmp.Or(outer, name)
	if outer != "" && c.kept.prepared != nil {
		err = c.kept.prepareHandle(ctx, c.Conn)
		nested = handleOf(c.Conn, commit)
	} else {
		nested, err = c.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin, CommitQuery: commit})
	}
	release = func(ctx context.Context) error {
		if err := nested.Commit(ctx); !errors.Is(err, pgx.ErrTxClosed) {
			return err
		}
		return nil // work has ended its nested transaction itself
	}
	return openTx{nested}, release, err
}

// Commit sends the proof as a prepared statement, unless a tracer of the caller's would not see how
// the handle is closed.
func (c *pgxConn) Commit(ctx context.Context, mark string, settled bool) (err error) {
	s := commitScript(mark, !settled)
	switch {
	case c.kept.prepared.serves(c.PgConn()):
		if err := c.kept.prepareHandle(ctx, c.Conn); err != nil {
			return err
		}
		if _, err = c.kept.sendPrepared(ctx, c.Conn, s); errors.Is(err, server.ErrUnprepared) {
			err = server.MixedUp(err)
		}
	case settled:
		_, _, err = send(ctx, c.Conn, nil, s)
	default:
		if err = c.begun.Commit(ctx); errors.Is(err, pgx.ErrTxClosed) {
			err = dialects.Lost(err)
		}
		return err
	}
	switch {
	case c.Status() == Idle: // also when the server has refused the COMMIT
		c.closeHandle()
	case err == nil:
		c.Destroy()
		err = dialects.Lost(errors.New("the server has not ended the transaction"))
	}
	return err
}

// over is a context that has ended.
var over, _ = context.WithDeadline(context.Background(), time.Time{})

func (c *pgxConn) Rollback(ctx context.Context) error {
	switch {
	case c.Status() == Idle:
		return nil
	case c.begun != nil:
		return c.begun.Rollback(ctx)
	}
	return c.Exec(ctx, "rollback")
}

func (c *pgxConn) Exec(ctx context.Context, statements string) error {
	if c.kept.prepared.serves(c.PgConn()) {
		return c.kept.prepared.exec(ctx, c.PgConn(), statements)
	}
	return c.pgxLink.Exec(ctx, statements)
}

func (c *pgxConn) Status() Status {
	if c.IsClosed() {
		return Closed
	}
	return Status(c.PgConn().TxStatus())
}

func (c *pgxConn) Destroy() { _ = c.Close(over) }

func (c *pgxConn) GiveBack() { c.pooled.Release() }
