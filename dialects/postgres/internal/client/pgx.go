package client

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/txlock/txlock/dialects/postgres/internal/protocol"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/identifier"
)

// pgxConn is the channel of a pgx connection.
type pgxConn struct {
	conn    *pgx.Conn
	past    *protocol.Sender // nil: pgx sends everything
	mode    pgx.QueryExecMode
	byText  bool                          // statements travel as one text
	backend *backend                      // nil: cancel requests interrupt
	alone   func(work func() error) error // runs work while nobody else uses the connection; nil: as it is
}

// kept is what the library knows of a connection as long as the connection lives.
type kept struct {
	*pgxConn
	line Line
}

func keptOf(conn *pgx.Conn, pool elsewhere) *kept {
	const key = "txlock"
	data := conn.PgConn().CustomData()
	k, known := data[key].(*kept)
	if !known {
		mode := conn.Config().DefaultQueryExecMode
		k = &kept{pgxConn: &pgxConn{
			conn: conn, past: protocol.Of(conn), backend: backendOf(conn), mode: mode,
			byText: mode == pgx.QueryExecModeSimpleProtocol,
		}}
		k.line = k.lineTo(pool)
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
	direct := c.past != nil && c.backend == nil
	return Line{
		send: c.send, direct: direct, directWork: direct, backend: c.backend,
		Interrupt: c.backend.interruptOf(c.conn, pool),
		Cut:       func() { _ = c.conn.PgConn().Conn().Close() },
		Socket:    c.conn.PgConn().Conn(), PGX: c.conn,
	}
}

func (c *pgxConn) use(work func() error) error {
	if c.alone == nil {
		return work()
	}
	return c.alone(work)
}

// send leaves statements of the caller's to pgx, unless they must come behind a savepoint.
func (c *pgxConn) send(ctx context.Context, s sqltext.Script, undo string, safe func()) (
	columns [][]string, err error,
) {
	err = c.use(func() (err error) {
		switch work := s.Works(); {
		case !c.past.Serves() || work && safe == nil:
			columns, err = sendBatch(ctx, c.conn, s)
		case work:
			columns, err = c.past.Fly(ctx, s, safe)
		default:
			columns, err = c.past.Run(ctx, s, undo, safe)
		}
		return err
	})
	return columns, err
}

func (c *pgxConn) begin(ctx context.Context, mark string, s sqltext.Script) ([][]string, error) {
	if mark != "" && !s.Works() && c.past.Serves() {
		err := c.use(func() error {
			_, err := c.past.Prepare(ctx, Proof(mark))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	columns, err := c.backend.run(ctx, append(append(make(sqltext.Script, 0, 1+len(s)), Begin), s...),
		"rollback; "+BeginSQL, c.send)
	return columns[min(1, len(columns)):], err
}

func (c *pgxConn) commit(ctx context.Context, mark string, behind ...sqltext.Statement) (
	columns [][]string, err error,
) {
	err = c.use(func() (err error) {
		switch s := ending(mark, behind); {
		case !c.past.Serves():
			columns, err = sendBatch(ctx, c.conn, s)
		case behind != nil:
			columns, err = c.past.Run(ctx, s, "", nil)
		default:
			err = c.past.Commit(ctx, s[0])
		}
		return err
	})
	return columns, err
}

func (c *pgxConn) Exec(ctx context.Context, statements string) error {
	statements = identifier.Qualified(statements)
	return c.use(func() (err error) {
		if c.past.Serves() {
			return c.past.Exec(ctx, statements)
		}
		_, err = c.conn.Exec(ctx, statements)
		return err
	})
}

func (c *pgxConn) commitAlone(ctx context.Context) error {
	return c.use(func() error {
		tag, err := c.conn.Exec(ctx, "commit")
		if err == nil && tag.String() == "ROLLBACK" {
			err = pgx.ErrTxCommitRollback
		}
		return err
	})
}

// Carries implements channel. Statements that travel as one text are read before any runs. In other
// modes than those two pgx has the server read them before it runs the lock in front: it would lock
// their tables.
func (c *pgxConn) Carries() (any, counted, inside bool) {
	return !c.byText, true, c.byText || c.mode == pgx.QueryExecModeExec || c.past != nil && c.backend == nil
}

func (c *pgxConn) Ask(context.Context) Status { return c.Status() }

func (c *pgxConn) Shown() Status { return c.Status() }

func (c *pgxConn) Status() (status Status) {
	if c.alone != nil {
		_ = c.alone(func() error {
			status = c.status()
			return nil
		})
		return status
	}
	return c.status()
}

func (c *pgxConn) status() Status {
	if c.conn.IsClosed() {
		return Closed
	}
	return Status(c.conn.PgConn().TxStatus())
}

func (c *pgxConn) Busy() (busy bool) {
	_ = c.use(func() error {
		busy = c.conn.PgConn().IsBusy()
		return nil
	})
	return busy
}

// handleOf is pgx's handle of a transaction, or of a nested one, that was begun without pgx. It
// comes with a batch that would begin one, and has nothing to send.
func handleOf(conn *pgx.Conn, commit string) pgx.Tx {
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{CommitQuery: commit})
	batch.QueuedQueries = nil
	return conn.SendBatch(context.Background(), &batch).Tx()
}

// over is a context that has ended. A handle that is committed in it is closed, and sends nothing.
var over, _ = context.WithDeadline(context.Background(), time.Time{})

// sendBatch runs a script as a batch of pgx's, which is one round trip, and a second one where pgx
// prepares statements, or asks what they are.
func sendBatch(ctx context.Context, conn *pgx.Conn, s sqltext.Script) ([][]string, error) {
	batch := pgx.Batch{QueuedQueries: make([]*pgx.QueuedQuery, 0, len(s))}
	for _, statement := range s {
		batch.Queue(statement.Sent(), statement.Values()...)
	}
	results := conn.SendBatch(ctx, &batch)
	columns, err := firstColumns(results, s)
	if closed := results.Close(); err == nil {
		err = closed
	}
	return columns, early(err, batch.QueuedQueries, s)
}

// early says which statement of the caller's pgx means with an error in front of all.
func early(err error, sent []*pgx.QueuedQuery, s sqltext.Script) error {
	var of pgx.ErrPreprocessingBatch
	if !errors.As(err, &of) {
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
		var column []string
		for rows.Next() {
			if work := statement.Work; work != nil && !work.Counted {
				if work.Into != nil {
					if unfit := rows.Scan(work.Into...); unfit != nil {
						err = sqltext.RefusedError{Work: work, Err: unfit}
					}
				}
				break
			}
			if raw := rows.RawValues(); len(raw) > 0 {
				column = append(column, string(raw[0]))
			}
		}
		rows.Close()
		if err = cmp.Or(err, rows.Err()); err != nil {
			return columns, err
		}
		if statement.Work != nil && !statement.Work.Counted {
			column = []string{strconv.FormatInt(rows.CommandTag().RowsAffected(), 10)}
		}
		columns = append(columns, column)
	}
	return columns, nil
}
