package client

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// pgxLink is the link of a pgx connection. Use runs work on it.
type pgxLink struct {
	use     func(work func(*pgx.Conn) error) error
	past    bool     // see sendsPast
	byText  bool     // statements travel as one text, which the server reads before it runs any
	ahead   bool     // pgx has the server read statements of the caller's before it runs those in front
	backend *backend // nil: cancel requests interrupt
	described
}

// querier runs scripts on a connection that was just taken from its pool. The socket tells whether
// it died while it was idle: after a restart of the server, say.
func (l pgxLink) querier(pool elsewhere) (q Querier, err error) {
	err = l.use(func(conn *pgx.Conn) error {
		q.Socket = conn.PgConn().Conn()
		q.Interrupt = l.backend.interruptOf(conn, pool)
		q.Conn = conn
		q.Cut = func() { _ = conn.PgConn().Conn().Close() }
		return nil
	})
	q.Run, q.Flight = l.Run, inTwo(l.Run)
	if l.ahead {
		q.Flight = inTwo(behindLock(l.Run))
	} else if l.past {
		q.Flight = func(ctx context.Context, s sqltext.Script, safe func()) (columns [][]string, err error) {
			err = l.use(func(conn *pgx.Conn) (err error) {
				columns, err = l.fly(ctx, conn, s, safe)
				return err
			})
			return columns, err
		}
	}
	return q, err
}

func (l pgxLink) Run(ctx context.Context, s sqltext.Script) ([][]string, error) {
	return l.backend.run(ctx, s, l.send)
}

func (l pgxLink) send(ctx context.Context, s sqltext.Script) (columns [][]string, err error) {
	err = l.use(func(conn *pgx.Conn) (err error) {
		if l.past && !s.Works() {
			columns, err = sendUnnamed(ctx, conn.PgConn(), s, nil)
		} else {
			columns, _, err = send(ctx, conn, nil, s)
		}
		return err
	})
	return columns, err
}

func (l pgxLink) Exec(ctx context.Context, statements string) error {
	return l.use(func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statements)
		return err
	})
}

func (l pgxLink) commitAlone(ctx context.Context) error {
	return l.use(func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, "commit")
		if err == nil && tag.String() == "ROLLBACK" {
			err = pgx.ErrTxCommitRollback
		}
		return err
	})
}

func (l pgxLink) Ask(context.Context) Status { return l.Status() }

func (l pgxLink) Shown() Status { return l.Status() }

func (l pgxLink) Status() (status Status) {
	_ = l.use(func(conn *pgx.Conn) error {
		if !conn.IsClosed() {
			status = Status(conn.PgConn().TxStatus())
		}
		return nil
	})
	return status
}

func (l pgxLink) Busy() (busy bool) {
	_ = l.use(func(conn *pgx.Conn) error {
		busy = conn.PgConn().IsBusy()
		return nil
	})
	return busy
}

func (l pgxLink) Told() (pid string) {
	_ = l.use(func(conn *pgx.Conn) error {
		if number := conn.PgConn().PID(); number != 0 {
			pid = strconv.FormatUint(uint64(number), 10)
		}
		return nil
	})
	return pid
}

// sender is a pgx connection, or a transaction on one, which refuses to send once it has ended.
type sender interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// send runs a script as a batch of pgx's, which is one round trip, and a second one where pgx
// prepares statements, or asks what they are. With begin, the transaction that the batch begins is
// returned, also after an error.
func send(ctx context.Context, to sender, begin *pgx.TxOptions, s sqltext.Script) ([][]string, pgx.Tx, error) {
	batch := pgx.Batch{QueuedQueries: make([]*pgx.QueuedQuery, 0, 1+len(s))}
	if begin != nil {
		batch.BeginTx(*begin)
	}
	for _, statement := range s {
		batch.Queue(statement.SQL, statement.Values()...)
	}
	results := to.SendBatch(ctx, &batch)
	var err error
	if begin != nil {
		_, err = results.Exec()
	}
	var columns [][]string
	if err == nil {
		columns, err = firstColumns(results, s)
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	return columns, results.Tx(), early(err, batch.QueuedQueries, s)
}

// refused is the error of a statement of the caller's which the client library, or the server, has
// refused before it ran, or of which it has refused a row.
type refused struct {
	work *sqltext.Work
	error
}

// Unwrap returns pgx's error.
func (r refused) Unwrap() error { return r.error }

// Refused is the statement of the caller's that was refused.
func Refused(err error) (work *sqltext.Work, ok bool) {
	var r refused
	ok = errors.As(err, &r)
	return r.work, ok
}

// early says which statement of the caller's pgx means with an error in front of all.
func early(err error, sent []*pgx.QueuedQuery, s sqltext.Script) error {
	var of pgx.ErrPreprocessingBatch
	if !errors.As(err, &of) {
		return err
	}
	for i, statement := range s {
		if statement.Work != nil && sent[len(sent)-len(s)+i].SQL == of.SQL() {
			return refused{statement.Work, of.Unwrap()}
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
						err = refused{work, unfit}
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
