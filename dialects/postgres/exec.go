package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/statements"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// Statements of the caller's travel with the lock, the proof and COMMIT in one flight where the
// server can judge all that must be judged before the COMMIT. Otherwise they travel with the lock,
// and COMMIT comes when the client library has told what they have affected.

// flight is a script of the caller's statements.
type flight struct {
	sqltext.Script
	statements []dialects.Statement
	first      int                  // of them in the script
	counted    bool                 // the server judges them, and COMMIT comes last
	inside     bool                 // the work of a Do: the release of the savepoint comes last
	status     func() client.Status // of the connection

	affected []int64
	failed   error // of the statements, or of what comes behind them
	unsent   bool  // the client library has refused a statement, or the server before it ran
}

var (
	// errNoFlight occurs when statements of the caller's cannot travel with the lock: the client
	// library cannot send them so, the server has forgotten what was prepared, or they end the
	// transaction, and must not run a second time.
	errNoFlight = errors.New("statements that cannot travel with the lock")

	// errUncounted occurs when the server refuses a statement in the form in which it counts for
	// itself. As it stands it may be right.
	errUncounted = fmt.Errorf("%w: the server cannot count one", errNoFlight)

	// errForgotten occurs when the server does not have what pgx has prepared. Then pgx knows.
	errForgotten = fmt.Errorf("%w: the server has forgotten one", errNoFlight)
)

// beginExec locks the rows of request and runs its statements behind the lock.
func (s *session[Tx]) beginExec(ctx context.Context, request dialects.Request) (got dialects.Grant, err error) {
	if slices.ContainsFunc(request.Exec.Statements, mayEnd) {
		return got, errNoFlight
	}
	anyOf, countedOnes, _ := s.conn.Carries()
	counted := !slices.ContainsFunc(request.Exec.Statements, isUncounted)
	for again := true; ; {
		if !anyOf && !(counted && countedOnes) {
			return got, errNoFlight
		}
		got, err = s.fly(ctx, request, counted)
		if !errors.Is(err, errNoFlight) {
			return got, err
		}
		if s.conn.Status() != client.Idle {
			clean, cancel := interrupt.Detached(ctx)
			undone := s.rollback(clean)
			cancel()
			if undone != nil {
				return got, dialects.Lost(undone)
			}
		}
		switch {
		case errors.Is(err, errForgotten) && again:
			again = false
		case errors.Is(err, errUncounted) && counted:
			counted = false
		default:
			return got, errNoFlight
		}
	}
}

func (s *session[Tx]) fly(ctx context.Context, request dialects.Request, counted bool) (got dialects.Grant, err error) {
	f := &flight{statements: firstTrip(request.Exec.Statements), counted: counted, status: s.conn.Status}
	on := terms{as: owner, mark: s.mark, flight: f, blind: true}
	_, err = s.await(ctx, request, on, func(ctx context.Context, lock plan) ([][]string, error) {
		columns, err := s.conn.Begin(ctx, s.mark, f.behind(lock.Script, s.mark))
		return columns, f.read(columns, err)
	})
	got.Affected, err = f.affected, f.result(request.Exec.Context, err)
	s.committed = err == nil && counted
	return got, err
}

// firstTrip is what travels together: an argument behind an Into may be what that fills.
func firstTrip(list []dialects.Statement) []dialects.Statement {
	into := func(s dialects.Statement) bool { return s.Into != nil }
	if i := slices.IndexFunc(list, into); i >= 0 {
		return list[:i+1]
	}
	return list
}

// flightInside is for statements in the work of a Do, where the server can judge them all. There is
// none for others: they run behind a savepoint that was set before.
func (s *session[Tx]) flightInside(request dialects.Request) *flight {
	if _, _, carries := s.conn.Carries(); request.Exec == nil || !carries {
		return nil
	}
	list := request.Exec.Statements
	if slices.ContainsFunc(list, mayEnd) || slices.ContainsFunc(list, isUncounted) {
		return nil
	}
	return &flight{statements: list, counted: true, inside: true, status: s.conn.Status}
}

// behind is the script that has the statements behind a lock, and what ends them. A mark is proved:
// what comes behind a COMMIT among the statements is not kept without it.
func (f *flight) behind(lock sqltext.Script, mark string) sqltext.Script {
	f.Script, f.first = lock, len(lock)
	for _, statement := range f.statements {
		work := sqltext.Statement{
			SQL:  statement.SQL,
			Work: &sqltext.Work{Args: statement.Args, Into: statement.Into, Counted: f.counted},
		}
		if f.counted {
			work.SQL = countedSQL(statement)
		}
		f.Script = append(f.Script, work)
	}
	if mark != "" {
		f.Script = append(f.Script, client.Proof(mark))
	}
	switch {
	case f.inside:
		f.Script = append(f.Script, client.ReleaseWait)
	case f.counted:
		f.Script = append(f.Script, client.Commit)
	}
	return f.Script
}

// read notes what has become of the statements. It returns an error of the lock, and an interrupt.
func (f *flight) read(columns [][]string, err error) error {
	state := server.State(err)
	f.affected, f.failed = nil, nil
	refused := errors.As(err, new(sqltext.RefusedError))
	if f.inside {
		f.unsent = refused && len(columns) < f.first ||
			err != nil && !refused && state == "" && f.status() != client.Closed
	} else {
		f.unsent = err != nil && state == "" && len(columns) == 0 && f.status() == client.Idle
	}
	switch {
	case f.unsent: // pgx refuses its text, say
		f.failed = errUncounted
	case !f.inside && f.counted && f.isBroken(err) && (state == "" || f.failedAt(columns, err) >= len(f.Script)-1):
		// The server's last words may come behind a COMMIT that took place.
		f.failed = fmt.Errorf("%w: the connection broke under the statements: %w", dialects.ErrUnknown, err)
	case state == server.UnknownStatement, state == server.KnownStatement:
		f.failed = errForgotten
	case err == nil || f.failedAt(columns, err) >= f.first:
		f.affected, f.failed = f.judge(columns, err)
	case state == server.SyntaxError, errors.Is(err, sqltext.ErrNoText): // nothing has run, for a text
		f.failed = errUncounted
	default:
		return err
	}
	return nil
}

// result is the error of the statements, or else that of the lock.
func (f *flight) result(ctx context.Context, lock error) error {
	ended := ctx.Err()
	switch {
	case f.failed == nil:
		return lock
	case ended != nil:
		return fmt.Errorf("%w (%w)", f.failed, ended)
	}
	return f.failed
}

// judge says what the statements have affected, or what has become of them and of the commit.
func (f flight) judge(columns [][]string, failed error) (affected []int64, err error) {
	if failed != nil {
		return nil, f.explain(f.failedAt(columns, failed)-f.first, failed)
	}
	affected = make([]int64, len(f.statements))
	for i, statement := range f.statements {
		if affected[i], err = strconv.ParseInt(columns[f.first+i][0], 10, 64); err == nil {
			err = statement.Judge(affected[i])
		}
		if err != nil {
			return nil, &dialects.StatementError{Number: i + 1, Err: err}
		}
	}
	return affected, nil
}

// explain says what the error of the statement at that position means, or that of what comes behind
// them.
func (f flight) explain(at int, failed error) error {
	rows, judged := affectedIn(failed)
	state := server.State(failed)
	switch {
	case f.isBroken(failed):
		return dialects.Lost(failed)
	case at == len(f.statements) && state == server.DivisionByZero:
		return errEnded
	case at >= len(f.statements): // a deferred constraint, say: nothing is committed
		return &dialects.StatementError{Err: failed}
	case judged:
		failed = f.statements[at].Judge(rows)
	case f.counted && (state == server.NotSupported || strings.HasPrefix(state, server.BadText)):
		return errUncounted
	}
	return &dialects.StatementError{Number: at + 1, Err: failed}
}

// isBroken tells whether the session is gone with the error. A flight that has COMMIT may then go
// on at the server, also while it still waits for the lock.
func (flight) isBroken(err error) bool {
	return !errors.As(err, new(sqltext.RefusedError)) && server.Broken(err) && !errors.Is(err, sqltext.ErrNoText)
}

// failedAt is the position of the statement that has failed. The client library, or the server, may
// refuse one before any was run.
func (f flight) failedAt(columns [][]string, failed error) int {
	var refused sqltext.RefusedError
	if errors.As(failed, &refused) {
		return slices.IndexFunc(f.Script, func(s sqltext.Statement) bool { return s.Work == refused.Work })
	}
	return len(columns)
}

// mayEnd tells whether a statement may end the transaction. Any that nobody knows may.
func mayEnd(s dialects.Statement) bool {
	switch wordOf(s.SQL) {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "WITH", "VALUES", "TABLE":
		return strings.Contains(trimmed(s.SQL), ";") // some client libraries send several statements
	}
	return true
}

// isUncounted tells whether nobody but the client library can count what a statement affects. A row
// that is asked for may not fit where it is to go, which nobody knows before it is there.
func isUncounted(s dialects.Statement) bool {
	switch wordOf(s.SQL) {
	case "SELECT", "INSERT", "UPDATE", "DELETE":
		return s.Into != nil
	}
	return true // it may not stand in a WITH
}

// wordOf is the first word of a statement.
func wordOf(text string) string {
	text = statements.Bare(text)
	end := strings.IndexFunc(text, func(r rune) bool { return r < 'A' || r > 'z' })
	return strings.ToUpper(text[:max(end, 0)])
}

func trimmed(text string) string { return strings.TrimRight(text, "; \t\r\n") }

// countedSQL is a statement that returns how many rows the caller's affects, and fails unless they
// are as many as they must be. Who has RETURNING in a literal gets an error of the server, and is
// not counted there.
func countedSQL(s dialects.Statement) string {
	text := trimmed(s.SQL)
	if wordOf(text) != "SELECT" && !strings.Contains(strings.ToLower(text), "returning") {
		text += "\nreturning 1"
	}
	judged := "pg_catalog.count(*)::pg_catalog.text"
	if s.Rows > 0 {
		judged += ", case when pg_catalog.count(*) <> " + strconv.Itoa(s.Rows) + " then pg_catalog.concat('txlock: " +
			affected + " ', pg_catalog.count(*), ' " + ours + "')::int end"
	}
	return "with txlock_work as materialized (" + text + "\n) select " + judged + " from txlock_work"
}

// affected is the verdict of countedSQL, before the number.
const affected = "affected"

func affectedIn(err error) (rows int64, judged bool) {
	if server.State(err) != server.InvalidText {
		return 0, false
	}
	_, text, _ := strings.Cut(err.Error(), "txlock: "+affected+" ")
	text, _, judged = strings.Cut(text, " "+ours)
	rows, failed := strconv.ParseInt(text, 10, 64)
	return rows, judged && failed == nil
}

// Exec implements dialects.Session.
func (s *session[Tx]) Exec(ctx context.Context, list []dialects.Statement) ([]int64, error) {
	together, _, _ := s.conn.Carries()
	if tx, ok := any(s.conn.Tx()).(*sql.Tx); ok && !together {
		return statements.Run(ctx, ctx, tx, list, nil)
	}
	affected := make([]int64, 0, len(list))
	for len(affected) < len(list) {
		trip := list[len(affected):]
		if trip = firstTrip(trip); !together || slices.ContainsFunc(trip, mayEnd) {
			trip = trip[:1] // what comes behind may be read otherwise
		}
		some, err := s.execTogether(ctx, trip)
		var of *dialects.StatementError
		if errors.As(err, &of) && of.Number > 0 { // else it is of what comes behind them
			of.Number += len(affected)
		}
		if err != nil {
			return nil, err
		}
		affected = append(affected, some...)
	}
	return affected, nil
}

func (s *session[Tx]) execTogether(ctx context.Context, list []dialects.Statement) ([]int64, error) {
	f := flight{statements: list}
	columns, err := s.Line.Run(ctx, f.behind(nil, s.mark))
	if err != nil && server.State(err) == "" && len(columns) == 0 && s.conn.Status() != client.Closed {
		if !errors.As(err, new(sqltext.RefusedError)) { // pgx refuses its text
			return nil, &dialects.StatementError{Number: 1, Err: err}
		}
	}
	return f.judge(columns, err)
}
