package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/peer"
)

// pgxPool is a pool of pgx connections.
type pgxPool struct{ *pgxpool.Pool }

// PGX is a pool of pgx connections.
func PGX(pool *pgxpool.Pool) Pool[pgx.Tx] { return pgxPool{pool} }

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
		c := &pooledPgx{pgxConn: p.known(pooled.Conn()), pooled: pooled}
		if !(peer.Conn{Conn: c.line.Socket}).Gone() {
			if err = unfit(c.conn); err != nil {
				c.GiveBack()
			}
			return c, err
		}
		c.Destroy()
		c.GiveBack()
		if dead == mayBeDead(int(p.Stat().MaxConns())) {
			return nil, errDead
		}
	}
}

func (p pgxPool) In(ctx context.Context, tx pgx.Tx) (l Line, err error) {
	if pooled, ok := tx.(*pgxpool.Tx); tx == nil || ok && pooled == nil || tx.Conn() == nil {
		return l, errors.New("nil transaction")
	}
	// Once the transaction has ended, its connection is somebody else's.
	open := func() error { return tx.SendBatch(context.WithoutCancel(ctx), &pgx.Batch{}).Close() }
	if err := open(); err != nil {
		return l, err
	}
	if tx.Conn().PgConn().IsBusy() {
		return l, ErrRowsOpen
	}
	c := *p.known(tx.Conn())
	c.through = tx
	l = c.line
	l.Cut, l.Socket = nil, nil
	l.Run = func(ctx context.Context, s sqltext.Script) ([][]string, error) {
		if err := open(); err != nil {
			return nil, err
		}
		return c.run(ctx, s)
	}
	return l, unfit(c.conn)
}

// ask asks on another connection of the pool, if it has one to give soon.
func (p pgxPool) ask(ctx context.Context, s sqltext.Statement) error {
	brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	conn, err := p.Pool.Acquire(brief)
	if err != nil {
		return cmp.Or(ctx.Err(), interrupt.ErrNoConnection)
	}
	defer conn.Release()
	// Outside a transaction, a pooler may execute what somebody else has prepared.
	_, err = conn.Exec(ctx, s.SQL, append([]any{pgx.QueryExecModeSimpleProtocol}, s.Args...)...)
	return err
}

// pgxConn is a pgx connection, or a transaction on one. A script is a batch of pgx's: one round
// trip, and a second one for statements that pgx prepares, or asks about, in front of them all.
type pgxConn struct {
	line    Line
	conn    *pgx.Conn
	through interface { // conn, or a transaction of the caller's
		Exec(ctx context.Context, statements string, args ...any) (pgconn.CommandTag, error)
		SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
	}
	mode  pgx.QueryExecMode
	known map[string]bool // texts that pgx has prepared, unless it has dropped one to make room
	most  int             // that pgx keeps
}

// known is what the library knows of a connection as long as the connection lives.
func (p pgxPool) known(conn *pgx.Conn) *pgxConn {
	const key = "txlock"
	data := conn.PgConn().CustomData()
	c, is := data[key].(*pgxConn)
	if is {
		return c
	}
	config := conn.Config()
	c = &pgxConn{
		conn: conn, through: conn, mode: config.DefaultQueryExecMode, known: make(map[string]bool),
		most: config.StatementCacheCapacity,
	}
	if c.mode == pgx.QueryExecModeCacheDescribe {
		c.most = config.DescriptionCacheCapacity
	}
	c.line = Line{
		Run: c.run, Interrupt: conn.PgConn().CancelRequest, // safe beside a running statement
		Cut:    func() { _ = conn.PgConn().Conn().Close() },
		Socket: conn.PgConn().Conn(),
		// Statements that travel as one text are read before any runs.
		Carries: c.mode != pgx.QueryExecModeSimpleProtocol,
	}
	if conn.PgConn().PID() == 0 {
		c.line.Tag = newTag()
		c.line.Interrupt = interruptBy(p.ask, c.line.Tag, "")
	}
	data[key] = c
	return c
}

// unfit is an error where a setting does not serve, as far as the server has told.
func unfit(conn *pgx.Conn) error {
	const encoding, conforming = "client_encoding", "standard_conforming_strings"
	e, c := conn.PgConn().ParameterStatus(encoding), conn.PgConn().ParameterStatus(conforming)
	if e == "UTF8" && c == "on" { // nearly always
		return nil
	}
	return cmp.Or(server.Unfit(encoding, e), server.Unfit(conforming, c))
}

// run begins a script again, once, where the server has forgotten what pgx has prepared: the
// server has then forgotten all.
func (c *pgxConn) run(ctx context.Context, s sqltext.Script) (columns [][]string, err error) {
	columns, err = c.batch(ctx, s)
	if err == nil || !isForgotten(err) {
		return columns, err
	}
	if s[0].Opens {
		undo := "rollback"
		if name, is := strings.CutPrefix(s[0].SQL, savepointSQL); is {
			undo += " to savepoint " + name + "; release savepoint " + name
		}
		_, failed := c.through.Exec(ctx, undo)
		if failed == nil {
			failed = c.conn.DeallocateAll(ctx)
		}
		if failed != nil {
			return columns, errors.Join(failed, err)
		}
		columns, err = c.batch(ctx, s)
	}
	if isForgotten(err) {
		err = server.MixedUp(err)
	}
	return columns, err
}

// isForgotten tells whether the server has not had what pgx has prepared, or had another one.
func isForgotten(err error) bool {
	state := server.State(err)
	return state == server.UnknownStatement || state == server.KnownStatement
}

// batch sends a script. In an open transaction, what pgx does not know yet comes behind the
// savepoint, in a batch of its own: pgx prepares in front of a whole batch, and the savepoint would
// not guard from an error there.
func (c *pgxConn) batch(ctx context.Context, s sqltext.Script) (columns [][]string, err error) {
	if len(s) == 1 && s[0].Silent && len(s[0].Args) == 0 { // pgx has nothing to prepare then
		if _, err = c.through.Exec(ctx, s[0].SQL); err != nil {
			return nil, err
		}
		return [][]string{nil}, nil
	}
	columns = make([][]string, 0, len(s))
	if s[0].Opens && c.conn.PgConn().TxStatus() == 'T' && c.prepares(s[1:]) {
		if columns, err = c.batch(ctx, s[:1]); err != nil {
			return columns, err
		}
		s = s[1:]
	}
	batch := pgx.Batch{QueuedQueries: make([]*pgx.QueuedQuery, len(s))}
	queries := make([]pgx.QueuedQuery, len(s))
	for i, statement := range s {
		queries[i] = pgx.QueuedQuery{SQL: statement.SQL, Arguments: statement.Args}
		if c.line.Tag != "" && !statement.Opens {
			queries[i].SQL = c.line.Tag + queries[i].SQL
		}
		batch.QueuedQueries[i] = &queries[i]
	}
	results := c.through.SendBatch(ctx, &batch)
	for i := 0; i < len(s) && err == nil; i++ {
		var rows pgx.Rows
		var column []string
		if rows, err = results.Query(); err == nil {
			column, err = c.read(rows, s[i])
		}
		if err == nil {
			columns = append(columns, column)
		}
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	if err != nil || len(c.known) > c.most { // after an error pgx prepares them anew
		clear(c.known)
		return columns, err
	}
	for _, statement := range s {
		c.known[statement.SQL] = true
	}
	return columns, nil
}

// prepares tells whether pgx has the server read a statement in front of them all.
func (c *pgxConn) prepares(s sqltext.Script) bool {
	if c.mode == pgx.QueryExecModeExec || c.mode == pgx.QueryExecModeSimpleProtocol {
		return false
	}
	return c.mode == pgx.QueryExecModeDescribeExec ||
		slices.ContainsFunc(s, func(statement sqltext.Statement) bool { return !c.known[statement.SQL] })
}

// IsUnsent tells whether pgx has refused a batch before it has sent any of it, but for what it
// prepares.
func IsUnsent(err error) bool { return errors.As(err, new(pgx.ErrPreprocessingBatch)) }

// read is the first column of a statement of the library's. Of one of the caller's it is how many
// rows were affected, or have come where one is asked for.
func (c *pgxConn) read(rows pgx.Rows, s sqltext.Statement) (column []string, err error) {
	if s.Work {
		affected, err := Affected(rows, s.Into)
		return []string{strconv.FormatInt(affected, 10)}, err
	}
	defer rows.Close()
	for !s.Silent && rows.Next() {
		var text pgtype.Text // pgx may have asked for it in another form
		first, raw := rows.FieldDescriptions()[0], rows.RawValues()[0]
		if err := c.conn.TypeMap().Scan(first.DataTypeOID, first.Format, raw, &text); err != nil {
			return nil, err
		}
		column = append(column, text.String)
	}
	rows.Close()
	return column, rows.Err()
}

// pooledPgx is a connection of a pgxPool.
type pooledPgx struct {
	*pgxConn
	pooled *pgxpool.Conn
	begun  pgx.BatchResults // has the handle of the transaction; nil: no work runs in it
}

func (c *pooledPgx) Line() Line { return c.line }

// Begin makes pgx's own handle of the transaction: that of a batch that begins one, and has nothing
// to send. Its Close closes the handle once the transaction has ended, so that nobody who has kept
// it sends anything in the next one of the connection.
func (c *pooledPgx) Begin(ctx context.Context, mark string, s sqltext.Script) ([][]string, error) {
	columns, err := c.run(ctx, s)
	if err == nil && mark != "" {
		var batch pgx.Batch
		batch.BeginTx(pgx.TxOptions{})
		batch.QueuedQueries = nil
		c.begun = c.conn.SendBatch(context.Background(), &batch)
	}
	return columns, err
}

func (c *pooledPgx) Tx() pgx.Tx { return workTx{c.begun.Tx()} }

func (c *pooledPgx) Commit(ctx context.Context, mark string, behind sqltext.Script) error {
	columns, err := c.run(ctx, slices.Concat(sqltext.Script{Proof(mark)}, behind, sqltext.Script{Commit}))
	switch {
	case err == nil && c.Status() != Idle:
		c.Destroy()
		return dialects.Lost(errors.New("the server has not ended the transaction"))
	case len(columns) <= len(behind) && server.Answered(err) && server.Broken(err): // its last words, before COMMIT
		return dialects.Lost(err)
	}
	return err
}

func (c *pooledPgx) Rollback(ctx context.Context) error {
	if c.Status() == Idle {
		return nil
	}
	return c.line.Exec(ctx, "rollback")
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

func (c *pooledPgx) Status() Status { return statusOf(c.conn) }
