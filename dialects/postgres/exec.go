package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/sqlconn"
	"github.com/txlock/txlock/dialects/internal/statements"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
)

// behind are statements of the caller's that travel with a lock. COMMIT travels with them where
// there is nothing to be judged before: neither a number of rows, nor a row that is asked for.
type behind struct {
	server.Script
	list    []dialects.Statement
	commits bool
}

// behindOf are the statements up to the first that may end the transaction, or change what those
// behind mean, or whose row is asked for: that may be an argument of those behind.
func behindOf(list []dialects.Statement) behind {
	b := behind{commits: len(list) > 0}
	for _, statement := range list {
		// One statement that reads or writes rows, and nothing else.
		text := strings.TrimRight(statements.Bare(statement.SQL), "; \t\r\n")
		if !plain.MatchString(text) || strings.Contains(text, ";") {
			break
		}
		b.list = append(b.list, statement)
		b.Script = append(b.Script, server.Statement{
			SQL: statement.SQL, Args: statement.Args, Work: true, Into: statement.Into,
		})
		b.commits = b.commits && statement.Rows == 0 && statement.Into == nil
		if statement.Into != nil {
			break
		}
	}
	if b.commits = b.commits && len(b.list) == len(list); b.commits {
		b.Script = append(b.Script, client.Commit)
	}
	return b
}

var plain = regexp.MustCompile(`^(?i:select|insert|update|delete|merge|with|values)\b`)

// errUnsent occurs when the client library has refused a batch before it was sent: for an argument
// that it cannot encode, or a table that a statement in front makes. They go one by one then.
var errUnsent = errors.New("the statements cannot travel with the lock")

// read says how many rows the statements have affected, on a connection of that status, or how they
// have failed: not where err is that of the lock, which has so many statements.
func (b behind) read(columns [][]string, lock int, status client.Status, err error) (affected []int64, failed error) {
	state, closed, at := server.State(err), status == client.Closed, len(columns)-lock
	unsent := errors.As(err, new(pgx.ErrPreprocessingBatch)) // but for what it prepares
	switch {
	case err == nil:
	case unsent && !sqlconn.Failed(err), state == "" && status == client.Idle:
		return nil, errUnsent
	case closed && !unsent && b.commits && (!server.Answered(err) || at >= len(b.list)):
		// All may be at the server, also while the lock is waited for, and the server's last words
		// may come behind a COMMIT that took place.
		return nil, fmt.Errorf("%w: the connection broke under the statements: %w", dialects.ErrUnknown, err)
	case closed && at >= 0 && (state == "" || server.Broken(err)): // else it was refused
		return nil, dialects.Lost(err)
	case at < 0:
		return nil, nil
	case at >= len(b.list): // a deferred constraint, say: nothing is committed
		return nil, &dialects.StatementError{Err: err}
	default:
		return nil, &dialects.StatementError{Number: at + 1, Err: err}
	}
	for i, statement := range b.list {
		n, err := strconv.ParseInt(columns[lock+i][0], 10, 64)
		if err == nil {
			err = statement.Judge(n)
		}
		if err != nil {
			return nil, &dialects.StatementError{Number: i + 1, Err: err}
		}
		affected = append(affected, n)
	}
	return affected, nil
}

// runAll runs statements in the transaction. They go one by one, each as the client library sends
// it for its users: so an argument that cannot be sent costs nothing but its statement.
func (s *session[Tx]) runAll(ctx context.Context, list []dialects.Statement) ([]int64, error) {
	return statements.Run(ctx, list, func(statement dialects.Statement) (n int64, err error) {
		if err = cmp.Or(s.usable(), ctx.Err()); err != nil {
			return 0, err
		}
		statement.SQL = s.Tag + statement.SQL
		err = interrupted(ctx, s.Line, false, func(ctx context.Context) (err error) {
			switch tx := any(s.Tx()).(type) {
			case pgx.Tx:
				rows, _ := tx.Query(ctx, statement.SQL, statement.Args...) // which have its error
				n, err = client.Affected(rows, statement.Into)
			case *sql.Tx:
				if statement.Into != nil {
					n, err = statements.Query(ctx, tx, statement)
				} else {
					n, err = statements.Exec(ctx, tx, statement)
				}
			}
			return err
		})
		if s.Status() == client.Closed {
			err = dialects.Lost(err)
		}
		return n, err
	})
}
