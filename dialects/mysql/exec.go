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
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/statements"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// flight is the statements of a request, which travel in one query with the lock, and the COMMIT or
// the end of their savepoint. An error of one of them, and a number of rows that is not the one
// that is asked for, ends the query.
type flight struct {
	conn       client.Conn
	request    dialects.Request
	statements []dialects.Statement
	texts      []string // of the statements, with their arguments
	inside     bool     // the work of a Do
	end        []string // releases the savepoint, and commits unless inside
	places     []int    // of the statements in the script, from its end
	affected   []int64
	failed     error // of the statements, or of what comes behind them
}

// Variables of the session say how far a flight has come.
const (
	reached    = "@txlock_at"   // 0: the lock; else the number of a statement
	judgedRows = "@txlock_rows" // that the last statement which is judged has affected
)

// flightOf is nil where statements do not travel with the lock. In the work of a Do they have a
// savepoint of that name.
func (s *session) flightOf(request dialects.Request, savepoint string) *flight {
	severalRows := request.Slots == 0 && len(request.Values) > 1
	if request.Exec == nil || request.AnyOne != "" || !s.conn.Several || severalRows || s.driver.pool.Galera() {
		return nil
	}
	texts, size := make([]string, len(request.Exec.Statements)), 0
	for i, statement := range request.Exec.Statements {
		if texts[i] = travelling(statement); texts[i] == "" {
			return nil
		}
		size += len(texts[i])
	}
	if size > longestFlight {
		return nil
	}
	s.scripted = true
	f := &flight{
		conn: s.conn, request: request, statements: request.Exec.Statements, texts: texts, inside: savepoint != "",
		end: []string{client.Release, "COMMIT"},
	}
	switch {
	case f.inside:
		f.end = []string{"RELEASE SAVEPOINT " + savepoint}
	case s.conn.Owned == nil:
		f.end[1] = "SET " + commits + s.restoredSQL()
	}
	return f
}

// longestFlight is far below what servers take in one query, by default (max_allowed_packet).
const longestFlight = 1 << 20

// travelling is the text of a statement with its arguments, or empty where it does not travel: the
// server must count what it affects, nothing of the text may be taken for the end of a statement,
// and what it means must not depend on how it is sent. Others are a guess: they take more trips.
//
// So the arguments are integers in plain places. A text is a DOUBLE in arithmetic when it stands in
// the query, a float is a DECIMAL, and an unsigned integer is a signed one. To a prepared
// statement they are something else.
func travelling(s dialects.Statement) string {
	text := statements.Bare(trimmed(s.SQL))
	bare := quoted.ReplaceAllLiteralString(text, "q")
	if s.Into != nil || !counted.MatchString(text) || unclear.MatchString(text) || strings.ContainsAny(bare, "'\"`") ||
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
	counted = regexp.MustCompile(`(?i)^(insert|update|delete|replace)\s`)

	quoted  = regexp.MustCompile("'[^']*'|\"[^\"]*\"|`[^`]*`")
	unclear = regexp.MustCompile(`(?i)[;#\\]|--|/\*|\b(returning|get_lock)\b`)

	lists    = regexp.MustCompile(`(?i)\b(values|in)\s*\(([^()]|\(\))*\)(\s*,\s*\(([^()]|\(\))*\))*`)
	elements = regexp.MustCompile(`[(,]\s*\?(\s*,\s*\?)*\s*[,)]`)
	operands = regexp.MustCompile(`(?i)[<>=]\s*([\w.]+\s*[+-]\s*)?\?(\s*$|\s*[,)]|\s+(and|or|where|on)\b)`)
)

func trimmed(text string) string { return strings.TrimRight(text, "; \t\r\n") }

// script has the statements behind the one that locks.
func (f *flight) script(lock, comment string) (texts []string) {
	texts = []string{"SET " + reached + " = 0"}
	if wanted := len(f.request.Values); wanted > 0 { // else all is held
		texts = append(texts, lock, "SET "+judgedRows+" = FOUND_ROWS()", judged(wanted))
	}
	f.places = make([]int, len(f.statements))
	for i, statement := range f.statements {
		texts = append(texts, "SET "+reached+" = "+strconv.Itoa(i+1)+", "+judgedRows+" = NULL")
		f.places[i] = len(texts)
		texts = append(texts, comment+f.texts[i])
		if statement.Rows > 0 {
			texts = append(texts, "SET "+judgedRows+" = ROW_COUNT()", judged(statement.Rows))
		}
	}
	texts = append(append(texts, "SET "+reached+" = "+strconv.Itoa(len(f.statements)+1)), f.end...)
	for i, place := range f.places {
		f.places[i] = len(texts) - place
	}
	return texts
}

// send runs the script in one query. It returns the values of the request when all of them are
// locked.
func (f *flight) send(ctx context.Context, script ...string) ([]string, error) {
	f.affected, f.failed = nil, nil
	all, err := f.conn.Fly(ctx, client.Joined(script...))
	if err != nil {
		return f.explain(ctx, err)
	}
	if len(all) < len(script) {
		f.failed = fmt.Errorf("%w: the server has run %d of the statements, and what is committed is unknown",
			dialects.ErrLost, len(all))
		if !f.inside { // what runs there has the connection
			server.Destroy(f.conn.Conn)
		}
		return nil, f.failed
	}
	for _, place := range f.places {
		f.affected = append(f.affected, all[len(all)-place])
	}
	return textsOf(f.request), nil
}

func textsOf(request dialects.Request) []string {
	texts := make([]string, len(request.Values))
	for i, value := range request.Values {
		texts[i] = value.Text
		if request.Slots == 0 {
			texts[i] = strconv.Itoa(i) // see lockSQL
		}
	}
	return texts
}

// explain returns an error of the lock, and notes any other.
func (f *flight) explain(ctx context.Context, failed error) ([]string, error) {
	number := server.Number(failed)
	if errors.Is(failed, driver.ErrBadConn) || errors.Is(failed, library.ErrPktTooLarge) { // nothing was sent
		return nil, failed
	}
	at, rows := 0, ""
	if number != 0 {
		var err error
		if at, rows, err = position(ctx, f.conn.Link()); err != nil {
			number = 0
		}
	}
	broken := number == 0 || number == server.ConnectionKilled || number == server.SessionKilled
	switch {
	case broken && f.inside:
		f.failed = server.Lost(failed)
	case broken:
		f.failed = fmt.Errorf("%w: the connection broke, and whether the statements were committed is unknown: %w",
			dialects.ErrLost, failed)
	case at == 0 && number == server.SeveralRows:
		return nil, nil // not all rows were locked
	case at == 0:
		return nil, failed
	case at > len(f.statements) && (number == server.NoSuchSavepoint || server.Aborted(failed)):
		f.failed = server.Lost(failed)
	case at > len(f.statements):
		f.failed = &dialects.StatementError{Err: failed}
	default:
		affected, err := strconv.ParseInt(rows, 10, 64)
		if err == nil && number == server.SeveralRows {
			failed = cmp.Or(f.statements[at-1].Judge(affected), failed)
		}
		f.failed = &dialects.StatementError{Number: at, Err: failed}
	}
	return textsOf(f.request), nil
}

// position is how far the query has come, and how many rows the last statement has affected that is
// judged. An interrupt of the query may still arrive.
func position(ctx context.Context, to client.Link) (at int, rows string, err error) {
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	const query = "SELECT CONCAT_WS(' ', " + reached + ", " + judgedRows + ")"
	line, err := to.Ask(clean, query)
	if server.Interrupted(err) {
		line, err = to.Ask(clean, query)
	}
	if err != nil {
		return 0, "", err
	}
	text, rows, _ := strings.Cut(strings.Join(line, ""), " ")
	at, err = strconv.Atoi(text)
	return at, rows, err
}

// judged fails with SeveralRows unless judgedRows is that many.
func judged(rows int) string {
	return fmt.Sprintf("SET "+reached+" = IF("+judgedRows+" = %d, "+reached+", (SELECT 1 UNION ALL SELECT 2))", rows)
}

// undone rolls back to the savepoint of statements that have failed, in the work of a Do. It
// returns why they have.
func (s *session) undone(ctx, running context.Context, failed error, savepoint string) error {
	if failed == nil || errors.Is(failed, dialects.ErrLost) {
		return failed
	}
	if ended := running.Err(); ended != nil {
		failed = fmt.Errorf("%w (%w)", failed, ended)
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	if err := s.exec(clean, "ROLLBACK TO SAVEPOINT "+savepoint); err != nil {
		return fmt.Errorf("%w (%w)", failed, server.Lost(err))
	}
	return failed
}

// Exec implements dialects.Session.
func (s *session) Exec(ctx context.Context, list []dialects.Statement) ([]int64, error) {
	tag := client.NewTag()
	tagged := make([]dialects.Statement, len(list))
	for i, statement := range list {
		tagged[i] = statement
		tagged[i].SQL = sqltext.Comment("", tag) + statement.SQL
	}
	var counts []int64
	err := s.driver.pool.Await(ctx, false, tag, interrupt.GuestPatience, s.conn.Cut,
		func(running context.Context) (err error) {
			counts, err = statements.Run(ctx, running, s.loan.Tx, tagged, affected)
			return err
		})
	if server.Broken(err) {
		err = server.Lost(err)
	}
	if ended := ctx.Err(); err != nil && ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w (%w)", err, ended)
	}
	return counts, err
}

// affected runs a statement, and is how many rows it has affected, or returned. For one that may
// return some, the driver tells nothing but the rows.
func affected(ctx context.Context, tx *sql.Tx, s dialects.Statement) (int64, error) {
	if !mayReturn.MatchString(s.SQL) {
		return statements.Exec(ctx, tx, s)
	}
	count, err := statements.Query(ctx, tx, s)
	if err != nil || count > 0 {
		return count, err
	}
	err = tx.QueryRowContext(ctx, "SELECT GREATEST(ROW_COUNT(), 0)").Scan(&count)
	return count, err
}

var mayReturn = regexp.MustCompile(`(?i)\b(select|with|table|values|returning|call|show)\b`)
