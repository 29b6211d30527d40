package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	library "github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/sqlconn"
	"github.com/txlock/txlock/dialects/internal/statements"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// travelling are the texts of the statements of an Exec, with their arguments, if they travel in
// one query with the lock and the COMMIT. Nil: there are none, or they go one by one.
func (s *session) travelling() (texts []string) {
	severalRows := s.request.Slots == 0 && len(s.request.Values) > 1
	if !s.request.Work.IsExec() || s.Owned == nil || severalRows || s.driver.Pool.Galera.Load() {
		return nil
	}
	const longest = 1 << 20 // far below what servers take in one query, by default (max_allowed_packet)
	size := 0
	for _, statement := range s.request.Work.Statements {
		text := travelling(statement)
		if size += len(text); text == "" || size > longest {
			return nil
		}
		texts = append(texts, text)
	}
	return texts
}

// travelling is the text of a statement with its arguments, or empty where it does not travel: the
// server must count what it affects, nothing of the text may be taken for the end of a statement,
// and what it means must not depend on how it is sent. So the arguments are integers in plain
// places: in a query a text is a DOUBLE in arithmetic, a float a DECIMAL, and an unsigned integer a
// signed one, which they are not to a prepared statement.
func travelling(s dialects.Statement) string {
	text := statements.Bare(strings.TrimRight(s.SQL, "; \t\r\n"))
	if s.Into != nil || !plain.MatchString(text) || unclear.MatchString(text) ||
		strings.Count(text, "?") != len(s.Args) || strings.Contains(elsewhere(text), "?") {
		return ""
	}
	for _, arg := range s.Args {
		switch arg.(type) {
		case int, int8, int16, int32, int64:
			text = strings.Replace(text, "?", fmt.Sprint(arg), 1)
		default:
			return ""
		}
	}
	return text
}

// elsewhere is a text without the arguments in plain places: a column is set to them or compared
// with them, alone or added to a column, or they are elements of VALUES or IN. Elsewhere, MySQL
// gives an argument another type than a literal, as in ROUND(?, 1) and ORDER BY ?.
func elsewhere(text string) string {
	text = lists.ReplaceAllStringFunc(text, func(list string) string { return elements.ReplaceAllString(list, "") })
	return operands.ReplaceAllString(text, "")
}

var (
	// plain has no comment, no second statement, and in quotes nothing that is read outside.
	plain = regexp.MustCompile(`(?i)^(insert|update|delete|replace)\s([\w\s.,()<>=!+*?-]|` + "`\\w+`" +
		`|'[^'\\()?]*')*$`)
	unclear  = regexp.MustCompile(`(?i)--|\b(returning|get_lock|row_count|found_rows)\b`)
	lists    = regexp.MustCompile(`(?i)\b(values|in)\s*\(([^()]|\(\))*\)(\s*,\s*\(([^()]|\(\))*\))*`)
	elements = regexp.MustCompile(`[(,]\s*\?(\s*,\s*\?)*\s*[,)]`)
	operands = regexp.MustCompile(`(?i)[<>=]\s*([\w.` + "`" + `]+\s*[+-]\s*)?\?(\s*$|\s*[,)]|\s+(and|or|where|on)\b)`)
)

// fly locks, runs the statements and commits in one query. An error of one of them, and another
// number of rows than it must affect, ends it. None can end the transaction: COMMIT needs no proof.
func (s *session) fly(ctx context.Context, settings string, texts []string) (affected []int64, err error) {
	running := s.request.Work.Context
	err = s.await(ctx, running, s.request, func(ctx context.Context, query, comment string) (err error) {
		affected, err = s.landed(s.Grids(ctx, s.script(settings, query, comment, texts)...))
		return err
	})
	switch ended := running.Err(); {
	case err == nil && affected == nil:
		err = s.explain(ctx, s.request)
	case isOfWork(err) && ended != nil:
		err = fmt.Errorf("%w (%w)", err, ended)
	}
	return affected, err
}

// script is what flies: the lock has a result, and each text one of how many rows it has affected.
// A column that is not unique has more rows than values.
func (s *session) script(settings, query, comment string, texts []string) []string {
	const judge = "SET @txlock = IF(%s %d, 0, (SELECT 1 UNION ALL SELECT 2))"
	script := []string{settings, query, fmt.Sprintf(judge, "FOUND_ROWS() >=", len(s.request.Values))}
	for i, text := range texts {
		script = append(script, comment+text)
		if n := s.request.Work.Statements[i].Rows; n == 0 {
			script = append(script, "SELECT ROW_COUNT()")
		} else {
			script = append(script, "SET @txlock = ROW_COUNT()", "SELECT @txlock", fmt.Sprintf(judge, "@txlock =", n))
		}
	}
	return append(script, "COMMIT")
}

// landed reads the results of a script. They tell whose an error is: that of the work, or of the
// lock if nothing of the rest has run. It is nil, too, where not all rows are locked.
func (s *session) landed(results [][][]string, failed error) (affected []int64, err error) {
	locked, _ := sqlconn.Column(results, nil)
	for i := 1; i < len(results); i++ {
		count, _ := strconv.ParseInt(results[i][0][0], 10, 64)
		affected = append(affected, count)
	}
	list, done, number := s.request.Work.Statements, len(affected), server.Number(failed)
	switch judged := number == server.SeveralRows; {
	case failed == nil && done == len(list):
		return affected, nil
	case errors.Is(failed, driver.ErrBadConn), errors.Is(failed, sql.ErrConnDone),
		errors.Is(failed, library.ErrPktTooLarge): // nothing was sent
		return nil, failed
	case number == 0, server.Ended(failed): // without an error, a KILL QUERY fell between two statements
		s.Destroy()
		return nil, fmt.Errorf("%w: the connection broke under the statements: %w", dialects.ErrUnknown,
			cmp.Or(failed, driver.ErrBadConn))
	case len(results) == 0:
		return nil, failed
	case judged && len(valuesOf(s.request, locked)) < len(s.request.Values):
		return nil, nil
	case judged && done > 0 && list[done-1].Judge(affected[done-1]) != nil:
		return nil, &dialects.StatementError{Number: done, Err: list[done-1].Judge(affected[done-1])}
	case done < len(list):
		return nil, &dialects.StatementError{Number: done + 1, Err: failed}
	case server.Broken(failed):
		return nil, server.Lost(failed)
	}
	return nil, &dialects.StatementError{Err: failed}
}

// isOfWork tells whether an error is that of the work, and not of its lock.
func isOfWork(err error) bool {
	return errors.As(err, new(*dialects.StatementError)) || errors.Is(err, dialects.ErrLost)
}

// runAll runs statements in the transaction.
func (s *session) runAll(ctx context.Context, list []dialects.Statement) (counts []int64, err error) {
	err = s.driver.Pool.Await(ctx, false, s.patience, s.cut, func(running context.Context, tag string) (err error) {
		counts, err = statements.Run(ctx, list, func(statement dialects.Statement) (int64, error) {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			statement.SQL = server.Comment("", tag) + statement.SQL
			n, err := affected(running, s.Tx(), statement)
			if server.Broken(err) {
				err = server.Lost(err)
			}
			return n, err
		})
		return err
	})
	return counts, err
}

// affected runs a statement, and is how many rows it has affected, or returned. For one that may
// return some, the driver tells nothing but the rows.
func affected(ctx context.Context, tx *sql.Tx, s dialects.Statement) (int64, error) {
	if s.Into == nil && !mayReturn.MatchString(s.SQL) {
		return statements.Exec(ctx, tx, s)
	}
	count, err := statements.Query(ctx, tx, s)
	if err == nil && count == 0 && s.Into == nil {
		err = tx.QueryRowContext(ctx, "SELECT GREATEST(ROW_COUNT(), 0)").Scan(&count)
	}
	return count, err
}

var mayReturn = regexp.MustCompile(`(?i)\b(select|with|table|values|returning|call|show)\b`)
