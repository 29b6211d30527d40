package postgres

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

const isolationSQL = "current_setting('transaction_isolation') in ('read committed', 'read uncommitted')"

// role is whose transaction rows are locked in.
type role int

const (
	owner   role = iota // begun for this lock
	guest               // begun for another lock of ours
	foreign             // the caller's
)

// terms are those on which rows are locked, besides the request.
type terms struct {
	as     role
	blind  bool          // the answers are not read; see verdictSQL
	flight *flight       // of statements of the caller's, which follow; nil: none do
	nest   string        // sets a savepoint for work behind the lock, whose end releases both; empty: none
	limit  time.Duration // of the wait, on the server; 0: none
	mark   string        // of a transaction with work; see client.MarkSetting
}

// plan is a script, and where in it the answers are; -1: nowhere.
type plan struct {
	sqltext.Script
	turnstiles, rows, token int
	look                    int
}

func newPlan() plan {
	return plan{Script: make(sqltext.Script, 0, 8), turnstiles: -1, look: -1}
}

func (p *plan) add(s sqltext.Statement) (at int) {
	if s.SQL != "" {
		p.Script = append(p.Script, s)
	}
	return len(p.Script) - 1
}

// lockScript locks the rows of request in an open transaction.
//
// The row is the truth. The turnstile, an advisory lock of the same transaction taken before the
// row, is the queue. PostgreSQL's row queue lets newcomers barge in between a commit and the
// wake-up of the first waiter (16 tight loops: 58 of 1600 out of order). The lock manager grants an
// advisory lock to the first waiter in the act of releasing it. Every session locks in the same
// order, turnstiles by number and then rows by value, so that two requests cannot block each other.
//
// A guest changes nothing but the wait. A foreign transaction waits for nothing, and locks nothing,
// under an isolation level whose snapshot is older than the wait.
func lockScript(request dialects.Request, on terms) (p plan, err error) {
	p = newPlan()
	if on.as != owner {
		p.add(client.WaitSavepoint)
	}
	if len(request.Values) == 0 { // all is held
		p.add(sqltext.Silent(on.nest))
		return p, nil
	}
	set, restore := settingsOf(request, on)
	p.add(set)
	if err := p.lockRows(request, on); err != nil {
		return p, err
	}
	if err := p.addRest(request, on); err != nil {
		return p, err
	}
	p.add(restore)
	switch {
	case on.nest != "": // inside the first savepoint, so that a cancel costs no more than any other
		p.add(sqltext.Silent(on.nest))
	case on.as != owner:
		p.add(client.ReleaseWait)
	case on.mark == "":
		p.add(dropSnapshot)
	}
	return p, nil
}

func (p *plan) lockRows(request dialects.Request, on terms) error {
	if on.isShort(request) {
		short, err := shortScript(request, on)
		p.Script = append(p.Script, short...)
		p.rows = len(p.Script) - 1
		return err
	}
	if request.AnyOne != "" && request.Try {
		p.rows = p.add(permitStatement(request, on.as))
		return nil
	}
	rows, err := rowsOf(request)
	if err != nil {
		return err
	}
	p.turnstiles = p.add(turnstileStatement(request, on.as))
	p.rows = p.add(rowStatement(request, rows, on))
	if on.as == guest && request.Try {
		p.add(passedLabel(request))
	}
	return nil
}

// addRest draws a token, and looks.
func (p *plan) addRest(request dialects.Request, on terms) error {
	if request.Fence != "" {
		fence, err := fenceOf(request.Fence)
		if err != nil {
			return err
		}
		token := fence.token()
		if on.as != owner && request.AnyOne == "" { // else the answer is read
			token = fence.tokenOrFail(request.Try)
		}
		p.token = p.add(token)
	}
	if request.Look != nil {
		p.Script = append(p.Script, scriptOf(*request.Look)...)
		p.look = len(p.Script) - 1
	}
	return nil
}

// dropSnapshot comes last in the lock of a session that then is idle. The server keeps the
// snapshot of the last statement until the next one comes; a SET has none. A heartbeat would be too
// late: who has begun to wait for the snapshot, CREATE INDEX CONCURRENTLY say, waits for the end of
// the transaction.
var dropSnapshot = sqltext.Silent("set local txlock.idle = ''")

func (t terms) isShort(request dialects.Request) bool {
	return t.as == owner && t.flight == nil && isShort(request)
}

// isShort tells whether an owner's lock of request takes one statement for a slot, and two for any
// other row.
func isShort(request dialects.Request) bool {
	return len(request.Values) == 1 && !request.Try
}

// shortScript passes the turnstile of the only row and locks that row, a slot in the same
// statement. The snapshot of that statement is older than the wait. That does not matter for slots,
// which nobody changes; but a row of the caller's that came meanwhile would be missed.
func shortScript(request dialects.Request, on terms) (sqltext.Script, error) {
	args := make([]string, 0, 3)
	args = append(args, strconv.FormatInt(turnstileOf(request, request.Values[0]), 10), labelOf(request))
	if on.mark != "" {
		args = append(args, on.mark)
	}
	if request.Ours {
		text, err := ourTextOf(ourShape{
			table: request.Table, column: request.Column, slots: request.Slots,
			work: on.mark != "", shared: request.Shared, permits: request.AnyOne != "",
		})
		return sqltext.Script{sqltext.With(text, args...)}, err
	}
	rows, err := rowsOf(request)
	turnstile := "select " + showSQL("$2") + ", " + sqltext.Pass(request, sqltext.Passing, "$1")
	if on.mark != "" {
		turnstile += ", " + sqltext.Set(client.MarkSetting, "$3")
	}
	return sqltext.Script{sqltext.With(turnstile, args...), rowStatement(request, rows, on)}, err
}

// ourShape is what the text that locks a row of our own table depends on.
type ourShape struct {
	table, column string
	slots         int
	work, shared  bool
	permits       bool // of a semaphore's queue
}

// ourTexts keeps the texts: to put one together takes as long as a tenth of the lock. There are
// four for each table.
var ourTexts sync.Map // of ourShape, to string

// ourTextOf passes the turnstile in a condition that is about no row. The server looks at such a
// condition once, and before it begins to scan (the plan's "One-Time Filter"). A condition on the
// row would be evaluated during the scan, unless that is one of the index, and would keep VACUUM
// from the page as long as it waits.
func ourTextOf(shape ourShape) (string, error) {
	if text, ok := ourTexts.Load(shape); ok {
		return text.(string), nil
	}
	request := dialects.Request{
		Table: shape.table, Column: shape.column, Slots: shape.slots, Ours: true, Shared: shape.shared,
	}
	if shape.permits {
		request.AnyOne = " "
	}
	rows, err := rowsOf(request)
	if err != nil {
		return "", err
	}
	marked := "1"
	if shape.work {
		marked = sqltext.Set(client.MarkSetting, "$3")
	}
	pass := sqltext.Pass(request, sqltext.Passing, "$1") + " is not null"
	text := "select " + marked + " from " + rows.table + " where (select case when " + showSQL("$2") +
		" is not null then " + pass + " end) and " + rows.column + " = $1" + rows.seeded + rowLock(request)
	ourTexts.Store(shape, text)
	return text, nil
}

// turnstileStatement returns no row where the isolation level is unsuitable.
func turnstileStatement(request dialects.Request, as role) sqltext.Statement {
	where := ""
	if as == foreign {
		where = " where " + isolationSQL
		if request.Shared {
			where += " and " + primarySQL
		}
	}
	numbers := turnstilesOf(request)
	if len(numbers) == 1 && !request.Try {
		return sqltext.With("select "+sqltext.Pass(request, sqltext.Passing, "$1")+where,
			strconv.FormatInt(numbers[0], 10))
	}
	pass := "count(" + sqltext.Pass(request, sqltext.Passing, "t") + ")" // in the order of the list
	if request.Try {
		all := "bool_and(" + sqltext.Pass(request, sqltext.Trying, "t") + ")"
		pass = "set_config('" + passedSetting + "', " + all + "::text, true)"
	}
	return sqltext.With("select "+pass+" from unnest($1::"+numberType(request)+"[]) t"+where+" having count(*) > 0",
		sqltext.ArrayOf(numbers))
}

func rowStatement(request dialects.Request, rows rowSet, on terms) sqltext.Statement {
	lock := sqltext.SelectFrom(rows.table, rows.column) + rows.where
	if on.as == foreign {
		lock += " and " + isolationSQL
	}
	if request.Try {
		lock += " and current_setting('" + passedSetting + "', true) = 'true'"
	}
	if len(request.Values) > 1 {
		lock += " order by 1"
	}
	lock += rowLock(request)
	if request.Try && locksRows(request) {
		lock += " skip locked"
	}
	if on.as != owner || on.flight != nil {
		lock = "select " + verdictSQL(request, on) + " from (" + lock + ") rows (locked)"
	}
	return sqltext.With(lock, rows.values)
}

// rowLock is how rows are locked.
func rowLock(request dialects.Request) string {
	switch {
	case !locksRows(request):
		return ""
	case request.Shared:
		return sqltext.ForShare
	case request.Ours:
		return " for update"
	}
	return sqltext.ForNoKeyUpdate
}

// permitStatement takes the first row of the list that is free. A row of another semaphore, in a
// table that was made anew, is none of them. The CASE keeps the server from trying it first.
func permitStatement(request dialects.Request, as role) sqltext.Statement {
	table, _ := sqltext.QuoteTable(request.Table)
	rows := make([]string, len(request.Values))
	for i, value := range request.Values {
		rows[i] = value.Text
	}
	statement := sqltext.With("", sqltext.ArrayOf(rows), request.AnyOne)
	shown := "null"
	if as == guest {
		shown = alsoSQL(statement.Bind(furtherLabelOf(request)))
	}
	statement.SQL = "select n::text, " + shown + " from (select n from unnest($1::int[]) n where case when exists " +
		"(select from " + table + " own where own.id = n and own.hash = $2) then " +
		sqltext.Pass(request, sqltext.Trying, "n") + " end limit 1) permit"
	return statement
}

// passedSetting says whether a try has passed its turnstiles. A try that has not must not touch the
// row either: while it does, the row is locked for the one that has passed. Of several tries at the
// same time, none would get the lock.
const passedSetting = "txlock.passed"

// passedLabel shows what a guest's try has locked. Before, the name shows what is waited for.
func passedLabel(request dialects.Request) sqltext.Statement {
	passed := " where current_setting('" + passedSetting + "', true) = 'true'"
	return sqltext.With("select "+alsoSQL("$1")+passed, furtherLabelOf(request))
}

// existScript reads which rows of request exist, without locking.
func existScript(request dialects.Request) (sqltext.Script, error) {
	rows, err := rowsOf(request)
	if err != nil {
		return nil, err
	}
	read := sqltext.SelectFrom(rows.table, rows.column+"::text") + rows.where
	return sqltext.Script{sqltext.With(read, rows.values)}, nil
}

type rowSet struct {
	table, column, where string
	seeded               string // the condition that slots are as many as the caller believes
	values               string
}

func rowsOf(request dialects.Request) (rowSet, error) {
	table, err := sqltext.QuoteTable(request.Table)
	if err != nil {
		return rowSet{}, err
	}
	column, err := sqltext.QuoteColumn(request.Column)
	if err != nil {
		return rowSet{}, err
	}
	rows := rowSet{table: table, column: column}
	texts := make([]string, len(request.Values))
	for i, value := range request.Values {
		if !value.Binary && (strings.ContainsRune(value.Text, 0) || !utf8.ValidString(value.Text)) {
			return rowSet{}, dialects.RefusedError{Err: fmt.Errorf("value %.100q of %s: text in PostgreSQL is valid "+
				"UTF-8 without NUL; give a []byte for a bytea column", value.Text, column)}
		}
		texts[i] = value.Text
		if value.Binary {
			texts[i] = fmt.Sprintf(`\x%x`, value.Text)
		}
	}
	if len(texts) == 1 {
		rows.where, rows.values = " where "+column+" = $1", texts[0]
	} else {
		rows.where, rows.values = " where "+column+" = any($1)", sqltext.ArrayOf(texts)
	}
	if request.Slots > 0 {
		rows.seeded = " and slots = " + strconv.Itoa(request.Slots)
	}
	rows.where += rows.seeded
	return rows, nil
}
