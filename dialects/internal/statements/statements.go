// Package statements runs the statements of a caller's, one by one.
package statements

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/peer"
)

// inFront are comments, and none that MySQL or MariaDB runs.
var inFront = regexp.MustCompile(`^(\s|--[ \t][^\n]*\n|/\*[^*/!+]*\*/)*`)

// Bare is a statement without the comments in front of it, as sqlc writes them.
func Bare(text string) string { return text[len(inFront.FindString(text)):] }

// Run runs a list in order by one, which is how many rows a statement has affected, up to the first
// that fails. Behind the end of ctx each has: it may return an interrupt, as MySQL's SLEEP does.
func Run(ctx context.Context, list []dialects.Statement, one func(dialects.Statement) (int64, error)) (
	affected []int64, err error,
) {
	for i, statement := range list {
		n, err := one(statement)
		ended := ctx.Err()
		if err == nil {
			err = cmp.Or(statement.Judge(n), ended)
		}
		if err == nil {
			affected = append(affected, n)
			continue
		}
		if !errors.Is(err, dialects.ErrLost) {
			err = &dialects.StatementError{Number: i + 1, Err: err}
		}
		if ended != nil && !errors.Is(err, ended) {
			err = fmt.Errorf("%w (%w)", err, ended)
		}
		return nil, err
	}
	return affected, nil
}

// Finish runs the statements of an Exec that have not run with its lock, in the session of that,
// and commits. It ends the session also after a panic of the client library.
func Finish[Tx any](s dialects.Session[Tx], request dialects.Request, affected []int64,
	run func(context.Context, []dialects.Statement) ([]int64, error),
) (_ []int64, err error) {
	ctx, first := request.Work.Context, len(affected)
	restore := peer.Conn{Conn: s.Socket()}.KeepAlive(request.Lease) // no heartbeat looks after it
	commit, limit := false, dialects.ReleaseTimeout
	defer func() {
		restore()
		ended := s.End(ctx, time.Now().Add(limit), commit)
		if ended != nil && !errors.Is(ended, dialects.ErrLost) {
			ended = &dialects.StatementError{Err: ended}
		}
		err = cmp.Or(err, ended) // nothing is committed behind a rollback, confirmed or not
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

// Exec is how many rows a statement has affected, as the driver tells.
func Exec(ctx context.Context, tx *sql.Tx, s dialects.Statement) (int64, error) {
	result, err := tx.ExecContext(ctx, s.SQL, s.Args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Query is how many rows a statement has returned. The first goes where it is asked for. Behind
// them may come an error, as of a stored procedure, which goes on behind its first SELECT.
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
