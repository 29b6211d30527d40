package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strings"

	library "github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/statements"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// flight is the statements of an Exec that travel in one query between their lock and the COMMIT.
// An error of one of them, and a number of rows that is not the one that is asked for, ends the
// query. None of them can end the transaction, so no proof goes before COMMIT.
type flight struct {
	conn     client.Conn
	request  dialects.Request
	texts    []string // of the statements, with their arguments
	behind   int      // how many statements go behind the lock
	places   []int    // of the texts among those
	ran      bool     // behind the lock
	affected []int64
}

// Variables of the session say how far the query has come, and how many rows that had.
const (
	reached = "@txlock_at" // NULL: nowhere; 0: the lock; else the number of a statement
	counted = "@txlock_rows"

	// longestFlight is far below what servers take in one query, by default (max_allowed_packet).
	longestFlight = 1 << 20
)

// flightOf is nil where statements go one by one.
func (s *session) flightOf(request dialects.Request) *flight {
	severalRows := request.Slots == 0 && len(request.Values) > 1
	apart := severalRows || s.driver.pool.Galera.Load()
	if !request.Work.IsExec() || s.conn.Owned == nil || apart {
		return nil
	}
	f, size := &flight{conn: s.conn, request: request}, 0
	for _, statement := range request.Work.Statements {
		text := travelling(statement)
		if size += len(text); text == "" || size > longestFlight {
			return nil
		}
		f.texts = append(f.texts, text)
	}
	return f
}

// travelling is the text of a statement with its arguments, or empty where it does not travel: the
// server must count what it affects, nothing of the text may be taken for the end of a statement,
// and what it means must not depend on how it is sent. Others are a guess: they take more trips.
//
// So the arguments are integers in plain places. A text is a DOUBLE in arithmetic when it stands in
// the query, a float is a DECIMAL, and an unsigned integer is a signed one. To a prepared
// statement they are something else.
func travelling(s dialects.Statement) string {
	text := statements.Bare(strings.TrimRight(s.SQL, "; \t\r\n"))
	bare := quoted.ReplaceAllLiteralString(text, "q")
	if s.Into != nil || !changes.MatchString(text) || unclear.MatchString(text) || strings.ContainsAny(bare, "'\"`") ||
		strings.Count(bare, "?") != len(s.Args) || strings.Count(text, "?") != len(s.Args) ||
		strings.Contains(elsewhere(bare), "?") {
		return ""
	}
	pieces := strings.Split(text, "?")
	for i, arg := range s.Args {
		switch arg.(type) {
		case int, int8, int16, int32, int64:
			pieces[i] += fmt.Sprint(arg)
		default:
			return ""
		}
	}
	return strings.Join(pieces, "")
}

// elsewhere is a text without the arguments in plain places: a column is set to them or compared
// with them, alone or added to a column, or they are elements of VALUES or IN. In others MySQL
// gives an argument another type than a literal, as in ROUND(?, 1) and in ? / price; ORDER BY takes
// a literal for the number of a column.
func elsewhere(text string) string {
	text = lists.ReplaceAllStringFunc(text, func(list string) string { return elements.ReplaceAllString(list, "") })
	return operands.ReplaceAllString(text, "")
}

var (
	changes = regexp.MustCompile(`(?i)^(insert|update|delete|replace)\s`)

	quoted  = regexp.MustCompile("'[^']*'|\"[^\"]*\"|`[^`]*`")
	unclear = regexp.MustCompile(`(?i)[;#\\]|--|/\*|\b(returning|get_lock)\b`)

	lists    = regexp.MustCompile(`(?i)\b(values|in)\s*\(([^()]|\(\))*\)(\s*,\s*\(([^()]|\(\))*\))*`)
	elements = regexp.MustCompile(`[(,]\s*\?(\s*,\s*\?)*\s*[,)]`)
	operands = regexp.MustCompile(`(?i)[<>=]\s*([\w.]+\s*[+-]\s*)?\?(\s*$|\s*[,)]|\s+(and|or|where|on)\b)`)
)

// script is what goes behind the statement that locks. A column that is not unique has more rows
// than values.
func (f *flight) script(comment string) (behind []string) {
	const judge = "SET " + reached + " = IF(%s %d, %d, (SELECT 1 UNION ALL SELECT 2))"
	behind = append(behind, fmt.Sprintf(judge, "FOUND_ROWS() >=", len(f.request.Values), 0))
	f.places = nil
	for i, text := range f.texts {
		f.places = append(f.places, len(behind))
		behind = append(behind, comment+text, fmt.Sprintf("SET %s = %d, %s = ROW_COUNT()", reached, i+1, counted))
		if rows := f.request.Work.Statements[i].Rows; rows > 0 {
			behind = append(behind, fmt.Sprintf(judge, counted+" =", rows, i+1))
		}
	}
	behind = append(behind, "COMMIT")
	f.behind = len(behind)
	return behind
}

// send returns an error of the lock, or with ran the outcome of the statements. Otherwise not all
// rows are locked.
func (f *flight) send(ctx context.Context, script []string) error {
	all, err := f.conn.Fly(ctx, client.Joined(append([]string{"SET " + reached + " = NULL"}, script...)...))
	if err != nil {
		err = f.explain(ctx, err)
		if ended := f.request.Work.Context.Err(); f.ran && ended != nil {
			err = fmt.Errorf("%w (%w)", err, ended)
		}
		return err
	}
	if f.ran = true; len(all) <= len(script) { // a KILL QUERY fell between two statements
		f.conn.Destroy()
		return fmt.Errorf("%w: the server has run %d of the statements", dialects.ErrUnknown, len(all))
	}
	for _, place := range f.places {
		f.affected = append(f.affected, all[len(all)-f.behind+place])
	}
	return nil
}

// explain tells whose error it is: that of the lock, if nothing of the rest has run. Nil: it has
// not locked all rows. It asks how far the query has come. An interrupt of that may still arrive.
func (f *flight) explain(ctx context.Context, failed error) error {
	number, judged, done, had := server.Number(failed), server.Number(failed) == server.SeveralRows, -1, int64(0)
	if number == 0 {
		// Where nothing was sent, the lock has failed.
		f.ran = !errors.Is(failed, driver.ErrBadConn) && !errors.Is(failed, library.ErrPktTooLarge)
	} else {
		clean, cancel := interrupt.Detached(ctx)
		defer cancel()
		const query = "SELECT CONCAT_WS(' ', COALESCE(" + reached + ", -1), COALESCE(" + counted + ", 0))"
		line, err := f.conn.Link().Ask(clean, query)
		if server.Interrupted(err) {
			line, err = f.conn.Link().Ask(clean, query)
		}
		if err == nil {
			_, err = fmt.Sscan(strings.Join(line, ""), &done, &had)
		}
		f.ran = err != nil || done >= 0
	}
	switch {
	case f.ran && done < 0:
		return fmt.Errorf("%w: the connection broke under the statements: %w", dialects.ErrUnknown, failed)
	case done < 0 && judged:
		return nil
	case done < 0:
		return failed
	case judged && done > 0 && f.request.Work.Statements[done-1].Judge(had) != nil:
		return &dialects.StatementError{Number: done, Err: f.request.Work.Statements[done-1].Judge(had)}
	case done < len(f.texts):
		return &dialects.StatementError{Number: done + 1, Err: failed}
	case server.Aborted(failed):
		return server.Lost(failed)
	}
	return &dialects.StatementError{Err: failed}
}

// runAll runs statements in the transaction.
func (s *session) runAll(ctx context.Context, list []dialects.Statement) (counts []int64, err error) {
	tag := client.NewTag()
	err = s.driver.pool.Await(ctx, false, tag, interrupt.GuestPatience, s.conn.Cut(),
		func(running context.Context) (err error) {
			counts, err = statements.Run(ctx, list, func(statement dialects.Statement) (int64, error) {
				if err := ctx.Err(); err != nil {
					return 0, err
				}
				statement.SQL = sqltext.Comment("", tag) + statement.SQL
				n, err := affected(running, s.conn.Tx(), statement)
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
	if err != nil || count > 0 || s.Into != nil {
		return count, err
	}
	err = tx.QueryRowContext(ctx, "SELECT GREATEST(ROW_COUNT(), 0)").Scan(&count)
	return count, err
}

var mayReturn = regexp.MustCompile(`(?i)\b(select|with|table|values|returning|call|show)\b`)
