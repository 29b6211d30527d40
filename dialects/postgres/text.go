package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// lockScript locks the rows of request in an open transaction: the settings of the wait, the queue
// locks, the rows, and what travels with them.
//
// The row is the truth. The queue lock, an advisory lock of the same transaction taken before the
// row, is the queue. PostgreSQL's row queue lets newcomers barge in between a commit and the
// wake-up of the first waiter (16 tight loops: 58 of 1600 out of order). The lock manager grants an
// advisory lock to the first waiter in the act of releasing it. Every session locks in the same
// order, queue locks by number and then rows by value, so that two requests cannot block each
// other. They are statements of their own, because a statement's snapshot is older than its wait: a
// row that came meanwhile would be missed.
func lockScript(request dialects.Request, on way, limit time.Duration, final bool) (s sqltext.Script, at answers,
	err error,
) {
	rows, err := rowsOf(request)
	if err != nil {
		return nil, at, err
	}
	s = make(sqltext.Script, 0, 8+len(on.behind.Script))
	if on.joined {
		s = append(s, client.WaitSavepoint)
	}
	s = append(s, settings(request, on, limit, final))
	if request.AnyOne != "" && request.Try {
		s = append(s, permitStatement(request, rows.table, on.joined))
	} else {
		at.passed = len(s)
		s = append(s, queueStatement(request), rowStatement(request, rows, on))
	}
	at.rows = len(s) - 1
	if request.Fence != "" {
		fence, err := fenceOf(request.Fence)
		if err != nil {
			return nil, at, err
		}
		token := fence.token()
		if request.AnyOne == "" {
			token = fence.tokenOrFail(request.Try)
		}
		at.token = len(s)
		s = append(s, token)
	}
	if request.Look != nil {
		s = append(s, scriptOf(*request.Look)...)
		at.look = len(s) - 1
	}
	switch {
	case on.nest != "": // inside the first savepoint, so that a cancel costs no more than any other
		s = append(s, sqltext.Silent(on.nest))
	case on.joined:
		s = append(s, client.ReleaseWait)
	case on.mark == "":
		s = append(s, dropSnapshot)
	}
	return s, at, nil
}

// dropSnapshot comes last in the lock of a session that then is idle. The server keeps the
// snapshot of the last statement until the next one comes; a SET has none. A heartbeat would be too
// late: who has begun to wait for the snapshot, CREATE INDEX CONCURRENTLY say, waits for the end of
// the transaction.
var dropSnapshot = sqltext.Silent("set local txlock.idle = ''")

// A session shows its label behind the application's name, as long as the transaction lasts: every
// role sees that name in pg_stat_activity. The prepared statements do not show what they lock. The
// server cuts names at 63 bytes. The last 13 are kept for a renewal, see label.Since.
const nameSQL = "current_setting('application_name')"

// furtherSQL is that name with a further lock of the same transaction, if there is room. Begin is
// what each label of this process begins with.
func furtherSQL(begin, of string) string {
	longer := nameSQL + " || ' ' || " + of
	return "case when strpos(" + nameSQL + ", " + begin + ") = 0 then left(left(" + nameSQL + ", 20) || " + begin + " || " +
		of + ", 50) when length(" + longer + ") <= 50 then " + longer + " else " + nameSQL + " end"
}

// shownSQL shows a try that has got its rows, on a condition. In a caller's transaction nothing is
// shown: its settings are its own.
func shownSQL(s *sqltext.Statement, request dialects.Request, got string) string {
	begin, of := s.Bind(label.Begin)+"::text", s.Bind(label.Of(request))+"::text"
	return "case when " + got + "strpos(" + nameSQL + ", " + begin + ") > 0 then " +
		sqltext.Set("application_name", furtherSQL(begin, of)) + " end"
}

// The statements that prepare a wait. Without a limit of the caller's, that of the session is kept,
// if it has one. A joined lock waits for nothing, and locks nothing, where the snapshot of the
// transaction is older than the wait, and on a standby, which grants an advisory lock apart from
// its primary.
var (
	suitable = "case when current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') or " +
		"pg_is_in_recovery() then " + failSQL(unsuitable) + " end"
	settingsSQL = func() (texts [2][3]string) {
		const own, joined = 0, 1
		texts[own][try] = "select " + client.LeaseSQL("$1", "$2") + ", set_config('application_name', left(left(" + nameSQL +
			", 20) || $3, 50), true), " + sqltext.Set(client.MarkSetting, "$4")
		texts[joined][try] = "select " + suitable
		waits := texts[joined][try]
		for _, setting := range [][2]string{
			{"client_connection_check_interval", "$1"}, {"application_name", furtherSQL("$2::text", "$3::text")},
		} {
			waits += ", " + sqltext.Set("txlock."+setting[0], "current_setting('"+setting[0]+"')") + ", " +
				sqltext.Set(setting[0], setting[1])
		}
		for i, text := range []string{own: texts[own][try], joined: waits} {
			limit := "$" + strconv.Itoa(5-i)
			text += ", " + sqltext.Set("txlock.lock_timeout", "current_setting('lock_timeout')") + ", "
			texts[i][caller] = text + sqltext.Set("lock_timeout", limit)
			texts[i][longest] = text + sqltext.Set("lock_timeout", "coalesce(nullif(current_setting('lock_timeout'), '0'), "+
				limit+")")
		}
		return texts
	}()
)

// Whose limit ends the wait.
const (
	try     = iota // nobody waits
	caller         // that of the caller
	longest        // see maxWait
)

func settings(request dialects.Request, on way, limit time.Duration, final bool) sqltext.Statement {
	whose := longest
	switch {
	case request.Try:
		whose = try
	case final:
		whose = caller
	}
	args := make([]string, 0, 5)
	joined := 0
	switch {
	case !on.joined:
		args = append(args, sqltext.Milliseconds(request.Lease), clientCheck, label.Begin+label.Of(request), on.mark)
	case request.Try: // its label comes with the rows: until then the name shows what is waited for
		return sqltext.Statement{SQL: settingsSQL[1][try]}
	default:
		args, joined = append(args, clientCheck, label.Begin, label.Of(request)), 1
	}
	if whose != try {
		args = append(args, sqltext.Milliseconds(limit))
	}
	return sqltext.Statement{SQL: settingsSQL[joined][whose], Args: args}
}

var clientCheck = sqltext.Milliseconds(client.ClientCheck)

// A queue lock is an advisory lock in front of a row, taken in one order by every session.
//
// In front of a row of the caller's it makes the order of the queue, and nothing else: its number
// is a hash, and a table that is spelled in two ways has two of them. In front of a row of our own
// table it also keeps others out while a held lock is renewed. So its numbers come from the server:
// the table's, whichever way it is spelled, and the row's.
func queueStatement(request dialects.Request) sqltext.Statement {
	numbers := queueLocks(request)
	if len(numbers) == 1 && !request.Try {
		return sqltext.With("select "+sqltext.Pass(request, sqltext.Passing, "$1"), strconv.FormatInt(numbers[0], 10))
	}
	from := " from unnest($1::bigint[]) t"
	if request.Ours {
		from = " from unnest($1::int[]) t"
	}
	pass := "count(" + sqltext.Pass(request, sqltext.Passing, "t") + ")" // in the order of the list
	if request.Try {
		pass = sqltext.Set(passedSetting, "bool_and("+sqltext.Pass(request, sqltext.Trying, "t")+")::text")
	}
	return sqltext.With("select "+pass+from, sqltext.ArrayOf(numbers))
}

// passedSetting says whether a try has passed its queue locks. A try that has not must not touch
// the row either: while it does, the row is locked for the one that has passed. Of several tries at
// the same time, none would get the lock.
const (
	passedSetting = "txlock.passed"
	passedSQL     = " and current_setting('" + passedSetting + "', true) = 'true'"
)

// queueLocks are those in front of the rows, in the order in which every session passes them.
func queueLocks(request dialects.Request) []int64 {
	numbers := make([]int64, len(request.Values))
	for i, row := range request.Values {
		if !request.Ours {
			numbers[i] = sqltext.Turnstile(request.Table, request.Column, row.Text)
			continue
		}
		number, err := strconv.ParseInt(row.Text, 10, 32)
		if err != nil {
			panic("bug: a row of our own without a number: " + err.Error())
		}
		numbers[i] = number
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// rowStatement locks the rows and counts them, and ends the settings of the wait. Where something
// travels behind that must not come without the lock, fewer rows are an error of the server's. A
// joined try of one row that has not passed its queue lock has taken nothing, and is none: the
// server would log it.
func rowStatement(request dialects.Request, rows rowSet, on way) sqltext.Statement {
	s := sqltext.With("", rows.values)
	lock, count := "select 1 from "+rows.table+rows.where, "count(*)"
	if len(request.Values) > 1 {
		lock, count = "select "+rows.column+" from "+rows.table+rows.where, "count(distinct locked)"
	}
	if request.Try {
		lock += passedSQL
	}
	if len(request.Values) > 1 {
		lock += " order by 1"
	}
	lock += rowLock(request)
	if request.Try && locksRows(request) {
		lock += " skip locked"
	}
	answer := count + "::text"
	if on.joined || on.behind.list != nil {
		fails := count + " < " + strconv.Itoa(len(request.Values))
		if request.Try && on.nest == "" && on.behind.list == nil && !on.blind && len(request.Values) == 1 {
			fails += passedSQL
		}
		answer = "case when " + fails + " then " + failSQL(others) + " else " + count + " end"
	}
	switch {
	case !request.Try:
		answer += ", " + restored("lock_timeout")
		if on.joined {
			answer += ", " + restored("client_connection_check_interval") + ", case when strpos(" +
				"current_setting('txlock.application_name'), " + s.Bind(label.Begin) + "::text) = 0 then " +
				restored("application_name") + " end"
		}
	case on.joined:
		answer += ", " + shownSQL(&s, request, count+" > 0 and ")
	}
	s.SQL = "select " + answer + " from (" + lock + ") rows (locked)"
	return s
}

func restored(setting string) string {
	return sqltext.Set(setting, "current_setting('txlock."+setting+"')")
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

// locksRows tells whether request locks rows besides its queue locks.
//
// Who shares a slot passes its queue lock in shared form, and locks no row: that writes nothing,
// takes no transaction number and holds nobody back. The exclusive form excludes it. Everybody who
// locks the slot alone has that until the end of the transaction. The row is read all the same: a
// table that is missing, or seeded otherwise, must not go unnoticed.
func locksRows(request dialects.Request) bool {
	return request.AnyOne == "" && (!request.Shared || request.Slots == 0)
}

// permitStatement takes the first row of the list that is free. A row of another semaphore, in a
// table that was made anew, is none of them. The CASE keeps the server from trying it first.
func permitStatement(request dialects.Request, table string, joined bool) sqltext.Statement {
	rows := make([]string, len(request.Values))
	for i, value := range request.Values {
		rows[i] = value.Text
	}
	s := sqltext.With("", sqltext.ArrayOf(rows), request.AnyOne)
	shown := "null"
	if joined {
		shown = shownSQL(&s, request, "")
	}
	s.SQL = "select n::text, " + shown + " from (select n from unnest($1::int[]) n where case when exists " +
		"(select from " + table + " own where own.id = n and own.hash = $2) then " +
		sqltext.Pass(request, sqltext.Trying, "n") + " end limit 1) permit"
	return s
}

type rowSet struct {
	table, column string // quoted
	where         string // with the condition that slots are as many as the caller believes
	values        string
}

func rowsOf(request dialects.Request) (rows rowSet, err error) {
	if rows.table, err = sqltext.QuoteTable(request.Table); err != nil {
		return rows, err
	}
	if rows.column, err = sqltext.QuoteColumn(request.Column); err != nil {
		return rows, err
	}
	texts := make([]string, len(request.Values))
	for i, value := range request.Values {
		if !value.Binary && (strings.ContainsRune(value.Text, 0) || !utf8.ValidString(value.Text)) {
			return rows, dialects.RefusedError{Err: fmt.Errorf("value %.100q of %s: text in PostgreSQL is valid "+
				"UTF-8 without NUL; give a []byte for a bytea column", value.Text, rows.column)}
		}
		texts[i] = value.Text
		if value.Binary {
			texts[i] = fmt.Sprintf(`\x%x`, value.Text)
		}
	}
	if len(texts) == 1 { // the server plans an array anew each time
		rows.where, rows.values = " where "+rows.column+" = $1", texts[0]
	} else {
		rows.where, rows.values = " where "+rows.column+" = any($1)", sqltext.ArrayOf(texts)
	}
	if request.Slots > 0 {
		rows.where += " and slots = " + strconv.Itoa(request.Slots)
	}
	return rows, nil
}
