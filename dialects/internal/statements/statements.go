// Package statements runs the statements of a caller's, one by one.
package statements

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"regexp"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/peer"
)

// inFront are comments, and none that MySQL or MariaDB runs.
var inFront = regexp.MustCompile(`^(\s|--[ \t][^\n]*\n|/\*[^*/!+]*\*/)*`)

// Bare is a statement without the comments in front of it, as sqlc writes them.
func Bare(text string) string { return text[len(inFront.FindString(text)):] }

// Run runs them in order, up to the first that fails, or until ctx ends. They get the context
// running, which may last longer. A driver tells of a statement either its rows
// or how many it has affected. Counted, unless nil, is how many those are of one whose rows were
// asked for.
func Run(ctx, running context.Context, tx *sql.Tx, list []dialects.Statement,
	counted func(ctx context.Context, tx *sql.Tx, s dialects.Statement) (affected int64, err error),
) ([]int64, error) {
	affected := make([]int64, len(list))
	for i, statement := range list {
		err := ctx.Err()
		switch {
		case err != nil:
		case statement.Into != nil:
			affected[i], err = Query(running, tx, statement)
		case counted != nil:
			affected[i], err = counted(running, tx, statement)
		default:
			affected[i], err = Exec(running, tx, statement)
		}
		if err == nil {
			err = statement.Judge(affected[i])
		}
		if err != nil {
			return nil, &dialects.StatementError{Number: i + 1, Err: err}
		}
	}
	return affected, Ended(ctx, list)
}

// Finish runs the statements of an Exec that have not run with its lock, in the session of that,
// and commits. It ends the session also after a panic of the client library. A rollback that is not
// confirmed has closed the connection, so nothing is committed.
func Finish[Tx any](s dialects.Session[Tx], request dialects.Request, affected []int64,
	run func(context.Context, []dialects.Statement) ([]int64, error),
) (_ []int64, err error) {
	ctx, first := request.Work.Context, len(affected)
	restore := peer.Conn{Conn: s.Socket()}.KeepAlive(request.Lease) // no heartbeat looks after it
	commit, limit := false, dialects.ReleaseTimeout
	defer func() {
		restore()
		ended := s.End(ctx, time.Now().Add(limit), commit)
		if err == nil && ended != nil && !errors.Is(ended, dialects.ErrLost) {
			ended = &dialects.StatementError{Err: ended}
		}
		err = cmp.Or(err, ended)
	}()
	more, err := run(ctx, request.Work.Statements[first:])
	if of := (*dialects.StatementError)(nil); errors.As(err, &of) && of.Number > 0 {
		of.Number += first
	}
	if commit = err == nil; commit {
		limit = dialects.CommitTimeout
	}
	return append(affected, more...), err
}

// Ended is an error when ctx has ended behind the statements: the last one may have taken an
// interrupt for its result, as MySQL's SLEEP does.
func Ended(ctx context.Context, list []dialects.Statement) error {
	if err := ctx.Err(); err != nil {
		return &dialects.StatementError{Number: len(list), Err: err}
	}
	return nil
}

// Exec is how many rows a statement has affected, as the driver tells.
func Exec(ctx context.Context, tx *sql.Tx, s dialects.Statement) (int64, error) {
	result, err := tx.ExecContext(ctx, s.SQL, s.Args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Query is how many rows a statement has returned. The first goes where it is asked for. Behind the
// rows may come an error, as of a stored procedure, which goes on behind its first SELECT.
func Query(ctx context.Context, tx *sql.Tx, s dialects.Statement) (count int64, err error) {
	for _, into := range s.Into {
		if _, ok := into.(*sql.RawBytes); ok {
			return 0, errors.New("sql.RawBytes in Into: its bytes are the driver's, and gone when Exec returns")
		}
	}
	rows, err := tx.QueryContext(ctx, s.SQL, s.Args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for ; rows.Next(); count++ {
		if count == 0 && s.Into != nil {
			if err := rows.Scan(s.Into...); err != nil {
				return 0, err
			}
		}
	}
	return count, cmp.Or(rows.Err(), rows.Close())
}
