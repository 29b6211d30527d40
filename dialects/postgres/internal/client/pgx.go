package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/txlock/txlock/dialects/internal/network"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/identifier"
)

// pgxConn is a pgx connection, or a transaction on one. A script is a batch of pgx's: one round trip, and
// a second one for statements that pgx prepares, or asks about, in front of them all.
//
// In a transaction that second trip must not come in front of a savepoint, which would not guard
// from its errors. Nor may the statements of the caller's be read in front of the lock: to read
// one, the server locks its tables. So what pgx does not know yet comes in a batch of its own.
type pgxConn struct {
	conn    *pgx.Conn
	through through // conn, or a transaction of the caller's
	mode    pgx.QueryExecMode
	backend *backend                      // nil: cancel requests interrupt
	alone   func(work func() error) error // runs work while nobody else uses the connection; nil: as it is
	known   *known
}

// through is what pgx.Conn and pgx.Tx have in common.
type through interface {
	Exec(ctx context.Context, statements string, args ...any) (pgconn.CommandTag, error)
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// known are statements that pgx has prepared on a connection. Pgx may have dropped one since, to
// make room. Then it prepares it anew, which fails only where it has become another one.
type known struct {
	texts map[string]bool
	types map[string]*pgconn.StatementDescription // of the arguments of the caller's
	most  int                                     // that pgx keeps
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
			known: &known{most: config.StatementCacheCapacity},
		}
		if c.mode == pgx.QueryExecModeCacheDescribe {
			c.known.most = config.DescriptionCacheCapacity
		}
		c.known.forget()
		k = &kept{c, c.lineTo(pool)}
		data[key] = k
	}
	return k
}

func (k *known) forget() {
	k.texts, k.types = make(map[string]bool), make(map[string]*pgconn.StatementDescription)
}

// note says what has become of a batch. After an error pgx prepares all its statements anew.
func (k *known) note(s sqltext.Script, err error) {
	if len(k.texts) > k.most {
		k.forget()
	}
	for _, statement := range s {
		if err == nil {
			k.texts[statement.SQL] = true
			continue
		}
		delete(k.texts, statement.SQL)
		delete(k.types, statement.SQL)
	}
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

func (c *pgxConn) send(ctx context.Context, s sqltext.Script) (columns [][]string, err error) {
	err = c.use(func() (err error) {
		prepared := !c.prepares(s) && !s.Works()
		columns, err = c.inTurn(ctx, s)
		again := isForgotten(err) || prepared && mayBeOutdated(err)
		if undo := undoOf(s); again && undo != "" && !c.conn.IsClosed() {
			if err = c.undo(ctx, undo, err); err == nil {
				columns, err = c.inTurn(ctx, s[1:])
				columns = append([][]string{nil}, columns...)
			}
		}
		return err
	})
	if isForgotten(err) {
		err = server.MixedUp(err)
	}
	return columns, err
}

// undoOf undoes all of a script but its first statement.
func undoOf(s sqltext.Script) string {
	switch s[0].SQL {
	case BeginSQL:
		return "rollback; " + BeginSQL
	case WaitSavepoint.SQL:
		return UndoWait.SQL
	}
	return ""
}

// undo rolls a script back for which what pgx has prepared may not serve any more. Where the server
// has forgotten one statement, it has forgotten all.
func (c *pgxConn) undo(ctx context.Context, undo string, failed error) error {
	_, err := c.through.Exec(ctx, undo)
	if err == nil && undo != UndoWait.SQL && isForgotten(failed) {
		c.known.forget()
		err = c.conn.DeallocateAll(ctx)
	}
	if err != nil {
		return errors.Join(err, failed)
	}
	return nil
}

// isForgotten tells whether the server has not had what pgx has prepared, or had another one.
func isForgotten(err error) bool {
	state := server.State(err)
	return state == server.UnknownStatement || state == server.KnownStatement
}

// mayBeOutdated tells whether an error of the server may come from what a statement was when it was
// prepared, or from types that have changed, or are gone. A verdict of ours does not.
func mayBeOutdated(err error) bool {
	const data, internal = "22", "XX" // classes
	state := server.State(err)
	if state == server.NotSupported { // which alone may mean something else
		var pg *pgconn.PgError
		return errors.As(err, &pg) && pg.Routine == "RevalidateCachedQuery"
	}
	return strings.HasPrefix(state, server.BadText) || strings.HasPrefix(state, internal) ||
		strings.HasPrefix(state, data) && !strings.Contains(err.Error(), `"txlock: `)
}

// inTurn sends a script in as few batches as may be.
func (c *pgxConn) inTurn(ctx context.Context, s sqltext.Script) (columns [][]string, err error) {
	for len(s) > 0 && err == nil {
		part := s[:c.together(ctx, s)]
		s = s[len(part):]
		if part[0].Work != nil && c.inTx() {
			if err := c.fit(ctx, part, true); err != nil {
				return columns, err
			}
		}
		var some [][]string
		some, err = c.sendBatch(ctx, part)
		columns = append(columns, some...)
	}
	return columns, err
}

// together is how many statements of a script may go in one batch.
func (c *pgxConn) together(ctx context.Context, s sqltext.Script) int {
	work := s.FirstWork()
	front := s
	if work >= 0 {
		front = s[:work]
	}
	switch {
	case !c.inTx():
	case s[0].Opens && (c.prepares(front[1:]) || work >= 0 && c.mode == pgx.QueryExecModeSimpleProtocol):
		return 1
	case work > 0 && (c.prepares(s[work:]) || c.fit(ctx, s[work:], false) != nil):
		return work
	}
	return len(s)
}

func (c *pgxConn) inTx() bool { return c.conn.PgConn().TxStatus() == 'T' }

// prepares tells whether pgx has the server read a statement in front of them all.
func (c *pgxConn) prepares(s sqltext.Script) bool {
	switch c.mode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
		return false
	case pgx.QueryExecModeDescribeExec:
		return len(s) > 0
	}
	return slices.ContainsFunc(s, func(statement sqltext.Statement) bool { return !c.known.texts[statement.SQL] })
}

// fit is an error where pgx cannot encode the arguments of a statement of the caller's. Pgx itself
// finds out when it has begun to send, and closes the connection. Ask says that the server may be
// asked for their types.
func (c *pgxConn) fit(ctx context.Context, s sqltext.Script, ask bool) error {
	for _, statement := range s {
		if statement.Work == nil || c.mode == pgx.QueryExecModeSimpleProtocol {
			continue
		}
		if err := c.fitOne(ctx, statement, ask); err != nil {
			return sqltext.RefusedError{Work: statement.Work, Err: err}
		}
	}
	return nil
}

func (c *pgxConn) fitOne(ctx context.Context, statement sqltext.Statement, ask bool) (err error) {
	text, args := statement.SQL, statement.Work.Args
	if len(args) > 0 {
		if rewriter, is := args[0].(pgx.QueryRewriter); is {
			if text, args, err = rewriter.RewriteQuery(ctx, c.conn, text, args[1:]); err != nil {
				return err
			}
		}
	}
	const most = 1<<16 - 1
	if len(args) > most {
		return fmt.Errorf("%d arguments, and PostgreSQL takes %d at most", len(args), most)
	}
	var b pgx.ExtendedQueryBuilder
	if c.mode == pgx.QueryExecModeExec { // pgx asks for no types
		return b.Build(c.conn.TypeMap(), nil, args)
	}
	types, known := c.known.types[statement.SQL]
	if known {
		err = b.Build(c.conn.TypeMap(), types, args)
	} else if !ask {
		err = errors.New("arguments whose types are not known")
	}
	if known && err == nil || !ask {
		return err
	}
	now, failed := c.conn.PgConn().Prepare(ctx, "", text, nil)
	switch {
	case failed != nil:
		return failed
	case known && slices.Equal(now.ParamOIDs, types.ParamOIDs):
		return err
	case known: // pgx would go on with the old types
		c.known.forget()
		if err = c.conn.DeallocateAll(ctx); err != nil {
			return err
		}
	}
	c.known.types[statement.SQL] = now
	return b.Build(c.conn.TypeMap(), now, args)
}

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
func (c *pgxConn) Carries() (any, counted, inside bool) {
	return c.mode != pgx.QueryExecModeSimpleProtocol, true, true
}

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

// sendBatch sends what nothing needs to come between. One statement of the library's without
// arguments is sent as it is: pgx has nothing to prepare then.
func (c *pgxConn) sendBatch(ctx context.Context, s sqltext.Script) (columns [][]string, err error) {
	if len(s) == 1 && s[0].Silent && len(s[0].Args) == 0 {
		if _, err = c.through.Exec(ctx, s[0].Sent()); err == nil {
			columns = make([][]string, 1)
		}
		return columns, err
	}
	batch := pgx.Batch{QueuedQueries: make([]*pgx.QueuedQuery, 0, len(s))}
	for _, statement := range s {
		batch.Queue(statement.Sent(), statement.Values()...)
	}
	results := c.through.SendBatch(ctx, &batch)
	columns, err = firstColumns(results, s)
	if closed := results.Close(); err == nil {
		err = closed
	}
	c.known.note(s, err)
	return columns, refused(err, batch.QueuedQueries, s)
}

// refused says which statement of the caller's pgx means with an error in front of all, unless that
// is the end of the connection.
func refused(err error, sent []*pgx.QueuedQuery, s sqltext.Script) error {
	var of pgx.ErrPreprocessingBatch
	if !errors.As(err, &of) || network.Failed(of.Unwrap()) {
		return err
	}
	for i, statement := range s {
		if statement.Work != nil && sent[i].SQL == of.SQL() {
			return sqltext.RefusedError{Work: statement.Work, Err: of.Unwrap()}
		}
	}
	return err
}

func firstColumns(results pgx.BatchResults, s sqltext.Script) ([][]string, error) {
	columns := make([][]string, 0, len(s))
	for _, statement := range s {
		rows, err := results.Query()
		if err != nil {
			return columns, err
		}
		column, err := firstColumn(rows, statement.Work)
		if err != nil {
			return columns, err
		}
		columns = append(columns, column)
	}
	return columns, nil
}

// firstColumn is that of a statement of the library's. Of one of the caller's it is how many rows
// were affected, or have come where one is asked for.
func firstColumn(rows pgx.Rows, work *sqltext.Work) (column []string, err error) {
	defer rows.Close()
	count := int64(0)
	for ; rows.Next(); count++ {
		if work != nil && !work.Counted {
			if work.Into != nil && count == 0 {
				if err := rows.Scan(work.Into...); err != nil {
					return nil, sqltext.RefusedError{Work: work, Err: err}
				}
			}
		} else if text, is := firstOf(rows); is {
			column = append(column, text)
		}
	}
	if work != nil && !work.Counted {
		if work.Into == nil {
			count = rows.CommandTag().RowsAffected()
		}
		column = []string{strconv.FormatInt(count, 10)}
	}
	return column, rows.Err()
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
