package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/txlock/txlock/dialects"
)

// line is one connection as the locking code sees it, whichever client library it belongs to.
type line struct {
	// run sends a script and returns the first column of each statement's rows. After an error no
	// statement behind the failed one has run.
	run func(ctx context.Context, s script) ([][]string, error)
	// interrupt ends the statement under way, from outside the connection.
	interrupt func(ctx context.Context) error
}

// cleanUpTimeout bounds what is sent after a failure to put a connection right.
const cleanUpTimeout = 5 * time.Second

// sender is a pgx connection, or a transaction on one, which refuses to send once it has ended.
type sender interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// send runs a script in one round trip, where it has run before (the first time pgx prepares the
// statements). With begin, the transaction that the batch begins is returned, also after an error.
func send(ctx context.Context, to sender, begin *pgx.TxOptions, s script) ([][]string, pgx.Tx, error) {
	var batch pgx.Batch
	if begin != nil {
		batch.BeginTx(*begin)
	}
	for _, statement := range s {
		batch.Queue(statement.sql, statement.args...)
	}
	results := to.SendBatch(ctx, &batch)
	columns, err := firstColumns(results, batch.Len())
	if closed := results.Close(); err == nil {
		err = closed
	}
	if begin != nil {
		columns = columns[min(1, len(columns)):]
	}
	return columns, results.Tx(), err
}

func firstColumns(results pgx.BatchResults, statements int) ([][]string, error) {
	columns := make([][]string, 0, statements)
	for range statements {
		rows, err := results.Query()
		if err != nil {
			return columns, err
		}
		var column []string
		for rows.Next() {
			if raw := rows.RawValues(); len(raw) > 0 {
				column = append(column, string(raw[0]))
			}
		}
		if err := rows.Err(); err != nil {
			return columns, err
		}
		columns = append(columns, column)
	}
	return columns, nil
}

// lineOf is the line of a pgx connection, or of a transaction on it.
func lineOf(to sender, conn *pgx.Conn) line {
	return line{
		run: func(ctx context.Context, s script) ([][]string, error) {
			columns, _, err := send(ctx, to, nil, s)
			return columns, err
		},
		interrupt: func(ctx context.Context) error { return conn.PgConn().CancelRequest(ctx) },
	}
}

// errRowsMissing says that fewer rows were locked than asked for.
var errRowsMissing = errors.New("rows missing")

// await sends the script that locks request, with the limit that ctx's deadline puts on the server.
// It returns the token, if one is asked for.
func (l line) await(ctx context.Context, request dialects.Request, as role,
	sendLock func(context.Context, script) ([][]string, error),
) (token int64, err error) {
	limit, told := dialects.ServerTimeout(ctx)
	if told = told && !request.Try; !told {
		limit = 0
	}
	p, err := lockScript(request, limit, as)
	if err != nil {
		return 0, err
	}
	var columns [][]string
	err = dialects.Await(ctx, told, l.interrupt, func(ctx context.Context) (err error) {
		columns, err = sendLock(ctx, p.script)
		return err
	})
	if err != nil {
		return 0, classify(err, request)
	}
	if p.turnstiles >= 0 {
		err = passed(request, as, columns[p.turnstiles])
	}
	if err == nil {
		err = complete(request, columns[p.rows])
	}
	if err != nil || request.Fence == "" {
		return 0, err
	}
	return tokenOf(columns[p.token])
}

// passed judges what the turnstiles answered.
func passed(request dialects.Request, as role, turnstiles []string) error {
	if as == foreign && len(turnstiles) == 0 {
		return fmt.Errorf("%w: the transaction's snapshot is older than the lock, so it would read stale data under "+
			"it; "+
			"begin it at READ COMMITTED", dialects.ErrIsolation)
	}
	for _, granted := range turnstiles {
		if request.Try && !isTrue(granted) {
			return fmt.Errorf("%w: another session holds it or waits for it", dialects.ErrNotAcquired)
		}
	}
	return nil
}

// complete judges whether all rows were locked.
func complete(request dialects.Request, rows []string) error {
	distinct := make(map[string]struct{}, len(rows))
	for _, row := range rows {
		distinct[row] = struct{}{}
	}
	if len(distinct) < len(request.Values) {
		return errRowsMissing
	}
	return nil
}

// isTrue reads a boolean in text, binary, or as database/sql prints it.
func isTrue(value string) bool { return value == "t" || value == "\x01" || value == "true" }

// explain turns errRowsMissing into what it means: rows that do not exist, or that others hold.
func (l line) explain(ctx context.Context, request dialects.Request, err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == undefinedTable && request.Fence != "" {
		return l.explainFence(ctx, request, pg, err)
	}
	if !errors.Is(err, errRowsMissing) {
		return err
	}
	s, err := existScript(request)
	if err != nil {
		return err
	}
	columns, err := l.run(ctx, s)
	if err != nil {
		return classify(err, request)
	}
	return request.Missed(columns[0])
}

// guestLock locks rows in a transaction that has more to lose than this lock: a savepoint takes
// every error.
func (l line) guestLock(ctx context.Context, request dialects.Request, as role) (token int64, err error) {
	// pgx closes the connection when ctx ends
	set, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	_, err = l.run(set, script{{sql: "savepoint txlock_wait"}})
	cancel()
	if sqlState(err) == noTransaction || broken(err) {
		return 0, lost(err)
	}
	if err != nil {
		return 0, err
	}
	token, err = l.await(ctx, request, as, l.run)

	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	if err == nil {
		_, err = l.run(clean, script{{sql: "release savepoint txlock_wait"}})
		return token, lost(err)
	}
	// This also gives back what was locked, and every setting its value.
	if undone := l.undo(clean, "txlock_wait"); undone != nil {
		return 0, lost(errors.Join(err, undone))
	}
	return 0, l.explain(clean, request, err)
}

// join locks rows in a transaction of ours, withLine gives another connection, for a moment.
func (l line) join(ctx context.Context, request dialects.Request,
	withLine func(context.Context, func(line) error) error,
) (int64, error) {
	token, err := l.guestLock(ctx, request, guest)
	if !errors.Is(err, errNoRun) {
		return token, err
	}
	// The transaction cannot lift the fence: that must be committed now. The pool may be waiting
	// for this very session.
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := withLine(brief, func(other line) error { return other.lift(brief, request.Fence) }); err != nil {
		return 0, err
	}
	return l.guestLock(ctx, request, guest)
}

// abandon rolls back what a script has left open. Where that fails the connection is closed when it
// goes back.
func (l line) abandon(ctx context.Context) {
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	_, _ = l.run(clean, script{{sql: "rollback"}})
}

// undo rolls back to a savepoint and releases it: in two trips, for nothing else can be prepared
// before the rollback.
func (l line) undo(ctx context.Context, savepoint string) error {
	if _, err := l.run(ctx, script{{sql: "rollback to savepoint " + savepoint}}); err != nil {
		return err
	}
	_, err := l.run(ctx, script{{sql: "release savepoint " + savepoint}})
	return err
}

// census reads what a lock table says of itself.
func (l line) census(ctx context.Context, table string) (dialects.SlotCensus, error) {
	quoted, err := quoteTable(table)
	if err != nil {
		return dialects.SlotCensus{}, err
	}
	columns, err := l.run(ctx, script{{sql: "select concat_ws(' ', count(*), coalesce(min(slot), 0), " +
		"coalesce(max(slot), 0), " +
		"coalesce(min(slots), 0), coalesce(max(slots), 0)) from " + quoted}})
	if err != nil {
		return dialects.SlotCensus{}, classify(err, dialects.Request{Table: table, Slots: 1})
	}
	var c dialects.SlotCensus
	_, err = fmt.Sscan(strings.Join(columns[0], ""), &c.Rows, &c.MinSlot, &c.MaxSlot, &c.MinSlots, &c.MaxSlots)
	if err != nil {
		return c, dialects.NotInstalled(table, err)
	}
	return c, nil
}
