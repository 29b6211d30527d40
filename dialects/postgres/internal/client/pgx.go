package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/identifier"
)

// pgxConn is a pgx connection, or a transaction on one. A script is a batch of pgx's: one round
// trip, and a second one for statements that pgx prepares, or asks about, in front of them all.
type pgxConn struct {
	conn    *pgx.Conn
	through through // conn, or a transaction of the caller's
	mode    pgx.QueryExecMode
	backend *backend                      // nil: cancel requests interrupt
	alone   func(work func() error) error // runs work while nobody else uses the connection; nil: as it is
	known   map[string]bool               // texts that pgx has prepared, unless it has dropped one to make room
	most    int                           // that pgx keeps
}

// through is what pgx.Conn and pgx.Tx have in common.
type through interface {
	Exec(ctx context.Context, statements string, args ...any) (pgconn.CommandTag, error)
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// kept is what the library knows of a connection as long as the connection lives.
type kept struct {
	*pgxConn
	line Line
}

func keptOf(conn *pgx.Conn, pool elsewhere) *kept {
	const key = "txlock"
	data := conn.PgConn().CustomData()
	k, is := data[key].(*kept)
	if !is {
		config := conn.Config()
		c := &pgxConn{
			conn: conn, through: conn, mode: config.DefaultQueryExecMode, backend: backendOf(conn),
			known: make(map[string]bool), most: config.StatementCacheCapacity,
		}
		if c.mode == pgx.QueryExecModeCacheDescribe {
			c.most = config.DescriptionCacheCapacity
		}
		k = &kept{c, c.lineTo(pool)}
		data[key] = k
	}
	return k
}

// unfit is an error where a setting does not serve, as far as the server has told.
func unfit(conn *pgx.Conn) error {
	return cmp.Or(server.Unfit("client_encoding", conn.PgConn().ParameterStatus("client_encoding")),
		server.Unfit("standard_conforming_strings", conn.PgConn().ParameterStatus("standard_conforming_strings")))
}

// lineTo runs scripts on a connection that was just taken from its pool. The socket tells whether
// it died while it was idle: after a restart of the server, say.
func (c *pgxConn) lineTo(pool elsewhere) Line {
	return Line{
		send: c.send, backend: c.backend, Interrupt: c.backend.interruptOf(c.conn, pool),
		Cut:    func() { _ = c.conn.PgConn().Conn().Close() },
		Socket: c.conn.PgConn().Conn(),
	}
}

func (c *pgxConn) use(work func() error) error {
	if c.alone == nil {
		return work()
	}
	return c.alone(work)
}

// send begins a script again, once, where the server has forgotten what pgx has prepared: the
// server has then forgotten all.
func (c *pgxConn) send(ctx context.Context, s sqltext.Script) (columns [][]string, err error) {
	err = c.use(func() (err error) {
		columns, err = c.batch(ctx, s)
		undo := undoOf[s[0].SQL]
		if !isForgotten(err) || undo == "" {
			return err
		}
		if _, failed := c.through.Exec(ctx, undo); failed != nil {
			return errors.Join(failed, err)
		}
		clear(c.known)
		if failed := c.conn.DeallocateAll(ctx); failed != nil {
			return errors.Join(failed, err)
		}
		columns, err = c.batch(ctx, s)
		return err
	})
	if isForgotten(err) {
		err = server.MixedUp(err)
	}
	return columns, err
}

// undoOf undoes a script that begins with that.
var undoOf = map[string]string{
	BeginSQL:          "rollback",
	WaitSavepoint.SQL: UndoWait.SQL + "; " + ReleaseWait.SQL,
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
	columns = make([][]string, 0, len(s))
	if len(s) > 1 && s[0].Opens && c.conn.PgConn().TxStatus() == 'T' && c.prepares(s[1:]) {
		if _, err = c.through.Exec(ctx, s[0].SQL); err != nil {
			return columns, err
		}
		columns, s = append(columns, nil), s[1:]
	}
	if len(s) == 1 && s[0].Silent && len(s[0].Args) == 0 { // pgx has nothing to prepare then
		if _, err = c.through.Exec(ctx, s[0].Sent()); err == nil {
			columns = append(columns, nil)
		}
		return columns, err
	}
	batch := pgx.Batch{QueuedQueries: make([]*pgx.QueuedQuery, 0, len(s))}
	for _, statement := range s {
		batch.Queue(statement.Sent(), statement.Values()...)
	}
	results := c.through.SendBatch(ctx, &batch)
	for i := 0; i < len(s) && err == nil; i++ {
		var rows pgx.Rows
		var column []string
		if rows, err = results.Query(); err == nil {
			column, err = firstColumn(rows, s[i].Work)
		}
		if err == nil {
			columns = append(columns, column)
		}
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	if len(c.known) > c.most {
		clear(c.known)
	}
	for _, statement := range s {
		if err == nil {
			c.known[statement.SQL] = true
		} else { // pgx prepares all of them anew
			delete(c.known, statement.SQL)
		}
	}
	return columns, err
}

// prepares tells whether pgx has the server read a statement in front of them all.
func (c *pgxConn) prepares(s sqltext.Script) bool {
	switch c.mode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
		return false
	case pgx.QueryExecModeDescribeExec:
		return true
	}
	return slices.ContainsFunc(s, func(statement sqltext.Statement) bool { return !c.known[statement.SQL] })
}

// IsUnsent tells whether pgx has refused a batch before it has sent any of it, but for what it
// prepares.
func IsUnsent(err error) bool { return errors.As(err, new(pgx.ErrPreprocessingBatch)) }

func (c *pgxConn) begin(ctx context.Context, _ string, s sqltext.Script) ([][]string, error) {
	columns, err := c.backend.run(ctx, append(append(make(sqltext.Script, 0, 1+len(s)), Begin), s...), c.send)
	return columns[min(1, len(columns)):], err
}

func (c *pgxConn) commit(ctx context.Context, mark string, behind ...sqltext.Statement) ([][]string, error) {
	return c.send(ctx, ending(mark, behind))
}

func (c *pgxConn) Exec(ctx context.Context, statements string) error {
	return c.use(func() error {
		_, err := c.through.Exec(ctx, identifier.Qualified(statements))
		return err
	})
}

// Carries implements Conn. Statements that travel as one text are read before any runs.
func (c *pgxConn) Carries() bool { return c.mode != pgx.QueryExecModeSimpleProtocol }

func (c *pgxConn) Ask(context.Context) Status { return c.Status() }

func (c *pgxConn) Status() (status Status) {
	_ = c.use(func() error {
		if !c.conn.IsClosed() {
			status = Status(c.conn.PgConn().TxStatus())
		}
		return nil
	})
	return status
}

func (c *pgxConn) Busy() (busy bool) {
	_ = c.use(func() error {
		busy = c.conn.PgConn().IsBusy()
		return nil
	})
	return busy
}

// firstColumn is that of a statement of the library's. Of one of the caller's it is how many rows
// were affected, or have come where one is asked for.
func firstColumn(rows pgx.Rows, work *sqltext.Work) (column []string, err error) {
	if work != nil {
		affected, err := Affected(rows, work.Into)
		return []string{strconv.FormatInt(affected, 10)}, err
	}
	defer rows.Close()
	for rows.Next() {
		if text, is := firstOf(rows); is {
			column = append(column, text)
		}
	}
	return column, rows.Err()
}

// Affected is how many rows a statement of the caller's has affected. The first one goes into into,
// and then it is how many have come.
func Affected(rows pgx.Rows, into []any) (count int64, err error) {
	defer rows.Close()
	for ; rows.Next(); count++ {
		if into != nil && count == 0 {
			if err := rows.Scan(into...); err != nil {
				return 0, err
			}
		}
	}
	if into == nil {
		count = rows.CommandTag().RowsAffected()
	}
	return count, rows.Err()
}

// firstOf is the first value of a row, as text: pgx may have asked for it in another form.
func firstOf(rows pgx.Rows) (text string, is bool) {
	raw := rows.RawValues()
	if len(raw) == 0 {
		return "", false
	}
	if rows.FieldDescriptions()[0].Format == pgx.TextFormatCode || raw[0] == nil {
		return string(raw[0]), true
	}
	values, err := rows.Values()
	if err != nil {
		return string(raw[0]), true
	}
	switch v := values[0].(type) {
	case []byte:
		return fmt.Sprintf(`\x%x`, v), true
	case bool:
		return strconv.FormatBool(v)[:1], true
	default:
		return fmt.Sprint(v), true
	}
}
