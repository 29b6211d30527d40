// Package client is the way to the server: pools and connections as pgx, database/sql and other
// drivers present them, and how a script travels on a connection. It knows nothing of locks.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
)

// Pool is where a client library keeps its connections.
type Pool[Tx any] interface {
	Take(ctx context.Context) (Conn[Tx], error)  // the connection may have died while it was idle
	In(ctx context.Context, tx Tx) (Line, error) // to the transaction of a caller's
	Size() int                                   // most connections; 0: as many as are asked for
}

// Conn is a connection of a pool.
type Conn[Tx any] struct {
	Line
	Transaction[Tx]
}

// Transaction is the only one on a connection of a pool, as a client library presents both.
type Transaction[Tx any] interface {
	// Begin runs a script that begins a transaction. After an error it may be open: Rollback ends
	// it.
	Begin(ctx context.Context, s server.Script) ([][]string, error)
	Tx() Tx // as work gets it
	// Commit runs a script that begins with a proof, and commits. An error that matches
	// dialects.ErrLost means that nothing is committed.
	Commit(ctx context.Context, s server.Script) error
	// Rollback ends the library's transaction, if there is one.
	Rollback(ctx context.Context) error
	// Destroy closes the connection, so that the server ends its session. It is given back all the
	// same.
	Destroy()
	GiveBack()
	Status() Status
}

// Status is the state of a session, as far as it is known without asking the server.
type Status byte

// The states of a session, as the server reports them.
const (
	Closed Status = 0 // the connection is
	Idle   Status = 'I'
	Failed Status = 'E' // the transaction is aborted
	Busy   Status = 'B' // with rows that were not read
	Open   Status = '?' // of which no more is known
)

// Line runs scripts on one connection, whichever client library it belongs to.
type Line struct {
	// Run sends a script, in one round trip where it can, and returns the first column of each
	// statement's rows. After an error no statement behind the failed one has run.
	Run func(ctx context.Context, s server.Script) ([][]string, error)
	// Interrupt ends the statement that is running, from outside the connection.
	Interrupt func(ctx context.Context) error
	// Cut closes the connection under a statement that interrupts do not end; nil: the end of the
	// statement's context does.
	Cut    func()
	Socket net.Conn

	Carries bool   // a script that begins a transaction may have statements of the caller's
	Tag     string // begins statements of the caller's, by which Interrupt finds them
}

// Exec runs statements without arguments, in one simple query.
func (l Line) Exec(ctx context.Context, statements string) error {
	_, err := l.Run(ctx, server.Script{{SQL: statements, Silent: true}})
	return err
}

// Begin and Commit enclose a script in a transaction of the library's.
var (
	Begin  = server.Statement{SQL: "begin isolation level read committed read write", Silent: true, Opens: true}
	Commit = server.Silent("commit")
)

// ErrRowsOpen says that nothing can be sent, and nothing is lost.
var ErrRowsOpen = errors.New("rows of a query in the same transaction are still open: read them to the end, or close " +
	"them, first")

type pgxPool struct{ *pgxpool.Pool }

// PGX is a pool of pgx connections.
func PGX(pool *pgxpool.Pool) Pool[pgx.Tx] { return pgxPool{pool} }

func (p pgxPool) Size() int { return int(p.Config().MaxConns) }

func (p pgxPool) Take(ctx context.Context) (none Conn[pgx.Tx], err error) {
	pooled, err := p.Acquire(ctx)
	if err != nil && ctx.Err() != nil {
		stat := p.Stat()
		return none, fmt.Errorf("no connection from the pool in time, %d of %d are in use: %w",
			stat.AcquiredConns(), stat.MaxConns(), err)
	}
	if err != nil {
		return none, fmt.Errorf("connect: %w", err)
	}
	c := &pooledPgx{pgxConn: known(pooled.Conn(), p.beside), pooled: pooled}
	return Conn[pgx.Tx]{c.line, c}, nil
}

func (p pgxPool) In(ctx context.Context, tx pgx.Tx) (l Line, err error) {
	if pooled, ok := tx.(*pgxpool.Tx); tx == nil || ok && pooled == nil || tx.Conn() == nil {
		return l, errors.New("nil transaction")
	}
	// Once the transaction has ended, its connection is somebody else's.
	if err := tx.SendBatch(context.WithoutCancel(ctx), &pgx.Batch{}).Close(); err != nil {
		return l, err
	}
	if tx.Conn().PgConn().IsBusy() {
		return l, ErrRowsOpen
	}
	for _, setting := range []string{"client_encoding", "standard_conforming_strings"} { // it may be of another pool
		if err := server.Unfit(setting, tx.Conn().PgConn().ParameterStatus(setting)); err != nil {
			return l, err
		}
	}
	l = known(tx.Conn(), p.beside).line
	l.Cut, l.Socket = nil, nil
	return l, nil
}

// beside sends a text on another connection of the pool, if it has one to give soon.
func (p pgxPool) beside(ctx context.Context, text string) error {
	brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	conn, err := p.Acquire(brief)
	if err != nil {
		return cmp.Or(ctx.Err(), interrupt.ErrNoConnection)
	}
	defer conn.Release()
	_, err = conn.Exec(ctx, text)
	return err
}

// pgxConn is a pgx connection. A script is a batch of pgx's: one round trip, and a second one for
// statements that pgx prepares, or asks about, in front of them all.
type pgxConn struct {
	line    Line
	conn    *pgx.Conn
	known   map[string]bool // texts that pgx has prepared, unless it has dropped one to make room
	most    int             // that pgx keeps; 0: it prepares, or describes, each anew
	mixedUp bool            // the server has not what pgx has prepared
}

// known is what the library knows of a connection as long as that lives. Beside is of its pool.
func known(conn *pgx.Conn, beside func(ctx context.Context, text string) error) *pgxConn {
	const key = "txlock"
	data := conn.PgConn().CustomData()
	if c, is := data[key].(*pgxConn); is {
		return c
	}
	config := conn.Config()
	c := &pgxConn{conn: conn, known: make(map[string]bool)}
	if config.DefaultQueryExecMode != pgx.QueryExecModeDescribeExec {
		c.most = min(config.StatementCacheCapacity, config.DescriptionCacheCapacity)
	}
	c.line = Line{
		Run: c.run, Interrupt: conn.PgConn().CancelRequest, // safe beside a running statement
		Cut:    func() { _ = conn.PgConn().Conn().Close() },
		Socket: conn.PgConn().Conn(),
		// Else all is one text, which the server reads before any of it runs.
		Carries: config.DefaultQueryExecMode != pgx.QueryExecModeSimpleProtocol,
	}
	if conn.PgConn().PID() == 0 {
		c.line.Tag = newTag()
		c.line.Interrupt = func(ctx context.Context) error { return beside(ctx, cancelSQL(c.line.Tag)) }
	}
	data[key] = c
	return c
}

// run sends a script. In an open transaction, what pgx does not know yet comes behind the
// savepoint, in a batch of its own: pgx prepares in front of a whole batch, and the savepoint would
// not guard from an error there.
func (c *pgxConn) run(ctx context.Context, s server.Script) (columns [][]string, err error) {
	if len(s) == 1 && s[0].Silent && len(s[0].Args) == 0 { // pgx has nothing to prepare then
		if _, err = c.conn.Exec(ctx, s[0].SQL); err != nil {
			return nil, err
		}
		return [][]string{nil}, nil
	}
	columns = make([][]string, 0, len(s))
	unknown := func(statement server.Statement) bool { return !c.known[statement.SQL] }
	if s[0].Opens && c.conn.PgConn().TxStatus() == 'T' && slices.ContainsFunc(s[1:], unknown) {
		if columns, err = c.run(ctx, s[:1]); err != nil {
			return columns, err
		}
		s = s[1:]
	}
	var batch pgx.Batch
	for _, statement := range s {
		text := statement.SQL
		if c.known[text] = true; !statement.Opens {
			text = c.line.Tag + text
		}
		batch.Queue(text, statement.Args...)
	}
	results := c.conn.SendBatch(ctx, &batch)
	for i := 0; err == nil && i < len(s); i++ {
		var column []string
		if column, err = read(results, s[i]); err == nil {
			columns = append(columns, column)
		}
	}
	err = cmp.Or(err, results.Close())
	if err == nil && len(c.known) <= c.most {
		return columns, nil
	}
	clear(c.known) // after an error pgx prepares them anew
	if state := server.State(err); state == server.UnknownStatement || state == server.KnownStatement {
		c.mixedUp = true
		err = fmt.Errorf("prepared statements were deallocated, or a pooler that shares the server's connections, and "+
			"does not track prepared statements, is in between; let it track them (PgBouncer 1.21 or later: "+
			"max_prepared_statements), or connect with default_query_exec_mode=simple_protocol: %w", err)
	}
	return columns, err
}

// read reads the first column of a statement of the library's. Of one of the caller's it is how
// many rows were affected, or have come where one is asked for.
func read(results pgx.BatchResults, s server.Statement) (column []string, err error) {
	if s.Silent {
		_, err = results.Exec()
		return nil, err
	}
	rows, _ := results.Query() // which have its error
	if s.Work {
		affected, err := Affected(rows, s.Into)
		return []string{strconv.FormatInt(affected, 10)}, err
	}
	for rows.Next() {
		var text pgtype.Text
		into := make([]any, len(rows.FieldDescriptions())) // nil: not looked at
		into[0] = &text
		_ = rows.Scan(into...) // whose error ends the rows, and is theirs
		column = append(column, text.String)
	}
	return column, rows.Err()
}

// Affected is how many rows a statement of the caller's has affected. The first one goes into into,
// and then it is how many have come.
func Affected(rows pgx.Rows, into []any) (count int64, err error) {
	defer rows.Close()
	for ; rows.Next(); count++ {
		if into != nil && count == 0 {
			_ = rows.Scan(into...) // see read
		}
	}
	if into == nil {
		count = rows.CommandTag().RowsAffected()
	}
	return count, rows.Err()
}

// pooledPgx is the transaction on a connection of a pgxPool.
type pooledPgx struct {
	*pgxConn
	pooled *pgxpool.Conn
	begun  pgx.BatchResults // has the handle of the transaction; nil: no work runs in it
}

func (c *pooledPgx) Begin(ctx context.Context, s server.Script) ([][]string, error) {
	return c.run(ctx, s)
}

// Tx is pgx's own handle of the transaction: that of a batch that begins one, and has nothing to
// send. Its Close closes the handle, so that who has kept it sends nothing in the next one.
func (c *pooledPgx) Tx() pgx.Tx {
	if c.begun == nil {
		var batch pgx.Batch
		batch.BeginTx(pgx.TxOptions{})
		batch.QueuedQueries = nil
		c.begun = c.conn.SendBatch(context.Background(), &batch)
	}
	return workTx{c.begun.Tx()}
}

// workTx is the transaction as work sees it, which does not end it.
type workTx struct{ pgx.Tx }

var errNotYours = errors.New("the transaction is that of the lock: it commits when the work returns nil, and rolls " +
	"back when it returns an error")

func (workTx) Commit(context.Context) error   { return errNotYours }
func (workTx) Rollback(context.Context) error { return errNotYours }

func (c *pooledPgx) Commit(ctx context.Context, s server.Script) error {
	columns, err := c.run(ctx, append(s, Commit))
	switch {
	case err == nil && c.Status() != Idle:
		c.Destroy()
		return dialects.Lost(errors.New("the server has not ended the transaction"))
	case len(columns) < len(s) && server.Answered(err) && server.Broken(err): // its last words, before COMMIT
		return dialects.Lost(err)
	}
	return err
}

func (c *pooledPgx) Rollback(ctx context.Context) (err error) {
	if c.Status() != Idle {
		_, err = c.conn.Exec(ctx, "rollback")
	}
	return err
}

func (c *pgxConn) Destroy() { _ = c.conn.Close(over) }

// over is a context that has ended: nothing is sent in it.
var over, _ = context.WithDeadline(context.Background(), time.Time{})

// GiveBack closes a connection that is still in a transaction, as Release does.
func (c *pooledPgx) GiveBack() {
	if c.mixedUp || c.begun != nil && c.Status() != Idle {
		c.Destroy()
	}
	if c.begun != nil {
		_ = c.begun.Close()
	}
	c.pooled.Release()
}

func (c *pgxConn) Status() Status {
	switch {
	case c.conn.IsClosed():
		return Closed
	case c.conn.PgConn().IsBusy():
		return Busy
	}
	return Status(c.conn.PgConn().TxStatus())
}
