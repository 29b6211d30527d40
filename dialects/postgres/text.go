package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// texts are the statements of a lock. They are constant: prepared statements serve them, and to put
// them together would take longer than to lock.
type texts struct {
	table, column, where string // quoted
	set, rows            string
	queue                string // empty: in rows
}

// shape is what texts depend on.
type shape struct {
	table, column             string
	slots, values             int
	ours, shared, permit, try bool
	joined                    bool
	fails                     verdict
}

// verdict is when the server is to fail with fewer rows than were named, because something travels
// behind that must not come without the lock.
type verdict byte

const (
	never verdict = iota
	// ifPassed is for a joined try of one row. One that has not passed its queue lock has taken
	// nothing, and an error of the server's would stand in its log.
	ifPassed
	always
)

// known are texts, by their shapes. A program has some for each of its tables, and for each number
// of values.
var known = struct {
	sync.Mutex
	texts map[shape]*texts
}{texts: make(map[shape]*texts)}

const mostKnown = 1000

func textsOf(r dialects.Request, joined bool, fails verdict) (t *texts, err error) {
	s := shape{
		r.Table, r.Column, r.Slots, len(r.Values), r.Ours, r.Shared, r.AnyOne != "", r.Try, joined, fails,
	}
	known.Lock()
	defer known.Unlock()
	if t = known.texts[s]; t != nil {
		return t, nil
	}
	t = &texts{set: settingsSQL(joined, r.Try)}
	if t.table, err = sqltext.QuoteTable(r.Table); err != nil {
		return nil, err
	}
	if t.column, err = sqltext.QuoteColumn(r.Column); err != nil {
		return nil, err
	}
	t.where = " where " + t.column + " = any($1)"
	if len(r.Values) == 1 { // the server plans an array anew each time
		t.where = " where " + t.column + " = $1"
	}
	if r.Slots > 0 {
		t.where += " and slots = " + strconv.Itoa(r.Slots)
	}
	if isAnyOne(r) {
		t.rows = anyOneSQL(r, t, joined)
	} else {
		t.queue, t.rows = queueSQL(r), rowsSQL(r, t, joined, fails)
	}
	if len(known.texts) == mostKnown {
		clear(known.texts)
	}
	known.texts[s] = t
	return t, nil
}

// isAnyOne tells whether one free row is enough.
func isAnyOne(r dialects.Request) bool { return r.AnyOne != "" && r.Try }

// queueLocks are the numbers of queue locks, in the order in which every session passes them.
//
// In front of a row of the caller's a queue lock makes the order of the queue, and nothing else:
// its number is a hash, and a table that is spelled in two ways has two of them. In front of a row
// of our own table it also keeps others out while a held lock is renewed. So its numbers come from
// the server: the table's, whichever way it is spelled, and the row's.
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

// queueArg is the argument that names the queue locks.
func queueArg(r dialects.Request) string {
	numbers := queueLocks(r)
	if len(r.Values) == 1 && !r.Try {
		return strconv.FormatInt(numbers[0], 10)
	}
	return sqltext.ArrayOf(numbers)
}

// valuesOf is the argument that names the rows.
func valuesOf(request dialects.Request, column string) (string, error) {
	list := make([]string, len(request.Values))
	for i, value := range request.Values {
		list[i] = value.Text
		switch {
		case value.Binary:
			list[i] = fmt.Sprintf(`\x%x`, value.Text)
		case strings.ContainsRune(value.Text, 0) || !utf8.ValidString(value.Text):
			return "", dialects.RefusedError{Err: fmt.Errorf("value %.100q of %s: text in PostgreSQL is valid UTF-8 "+
				"without NUL; give a []byte for a bytea column", value.Text, column)}
		}
	}
	if len(list) == 1 && !isAnyOne(request) {
		return list[0], nil
	}
	return sqltext.ArrayOf(list), nil
}

// settingsSQL prepares a wait. A limit of the session's own is kept where nobody has asked for
// another. A joined lock waits for nothing, and locks nothing, where the snapshot of the
// transaction is older than the wait, and on a standby, which grants an advisory lock apart from
// its primary.
func settingsSQL(joined, try bool) string {
	calls := []string{
		client.LeaseSQL("$1"), sqltext.Set("application_name", "left(left("+nameSQL+", 20) || $2, 50)"),
		sqltext.Set(client.MarkSetting, "$3"),
	}
	limit, bounded := "$4", "$5"
	if joined {
		calls = []string{"case when current_setting('transaction_isolation') not in ('read committed', " +
			"'read uncommitted') or pg_is_in_recovery() then " + failSQL(unsuitable) + " end"}
		limit, bounded = "$3", "$4"
	}
	during := func(setting, value string) {
		calls = append(calls, sqltext.Set("txlock."+setting, "current_setting('"+setting+"')"),
			sqltext.Set(setting, value))
	}
	if joined && !try { // what is joined without a wait is shown when it is there
		during("client_connection_check_interval", client.CheckSQL)
		during("application_name", furtherSQL("$1", "$2"))
	}
	if !try {
		const current = "current_setting('lock_timeout')"
		during("lock_timeout", "case when "+bounded+"::boolean or "+current+" = '0' then "+limit+" else "+current+
			" end")
	}
	return "select " + strings.Join(calls, ", ")
}

// argsOf are the arguments of the settings, but for those of the limit, and of the rows.
func argsOf(r dialects.Request, on way, values string) (set, rows []any) {
	rows = append(make([]any, 0, 4), values)
	if isAnyOne(r) {
		rows = append(rows, r.AnyOne)
	}
	switch {
	case !on.joined:
		return append(make([]any, 0, 5), sqltext.Milliseconds(r.Lease), label.Begin+r.Label, on.mark), rows
	case r.Try:
		return nil, append(rows, label.Begin, r.Label)
	default:
		return append(make([]any, 0, 4), label.Begin, r.Label), append(rows, label.Begin)
	}
}

// restored ends a setting of the wait.
func restored(setting string) string {
	return sqltext.Set(setting, "current_setting('txlock."+setting+"')")
}

// A session shows its label behind the application's name, as long as the transaction lasts: every
// role sees that name in pg_stat_activity. The prepared statements do not show what they lock. The
// server cuts names at 63 bytes. The last 13 are kept for a renewal, see label.Since.
const nameSQL = "current_setting('application_name')"

// furtherSQL is that name with a further lock of the same transaction, if there is room. Begin is
// what each label of this process begins with.
func furtherSQL(begin, of string) string {
	longer := nameSQL + " || ' ' || " + of + "::text"
	return "case when strpos(" + nameSQL + ", " + begin + "::text) = 0 then left(left(" + nameSQL + ", 20) || " +
		begin + "::text || " + of + "::text, 50) when length(" + longer + ") <= 50 then " + longer + " else " +
		nameSQL + " end"
}

// shownSQL shows a try that has got its rows, on a condition. In a caller's transaction nothing is
// shown: its settings are its own.
func shownSQL(begin, of, got string) string {
	return "case when " + got + "strpos(" + nameSQL + ", " + begin + "::text) > 0 then " +
		sqltext.Set("application_name", furtherSQL(begin, of)) + " end"
}

// together tells whether the queue lock is in the statement of the row. See [lockScript].
func together(r dialects.Request) bool { return r.Ours && len(r.Values) == 1 && !r.Try }

func queueSQL(r dialects.Request) string {
	from := " from unnest($1::bigint[]) t"
	if r.Ours {
		from = " from unnest($1::int[]) t"
	}
	switch {
	case together(r):
		return ""
	case r.Try:
		all := "bool_and(" + sqltext.Pass(r, sqltext.Trying, "t") + ")::text"
		return "select " + sqltext.Set(passedSetting, all) + from
	case len(r.Values) == 1:
		return "select " + sqltext.Pass(r, sqltext.Passing, "$1")
	}
	return "select count(" + sqltext.Pass(r, sqltext.Passing, "t") + ")" + from // in the order of the list
}

// passedSetting says whether a try has passed its queue locks. A try that has not must not touch
// the row either: while it does, the row is locked for the one that has passed. Of several tries at
// the same time, none would get the lock.
const (
	passedSetting = "txlock.passed"
	passedSQL     = "current_setting('" + passedSetting + "', true) = 'true'"
)

// rowsSQL locks the rows, counts them, and ends the settings of the wait. A queue lock in it is a
// condition that is about no row: the server looks at that once, before it begins to scan (the
// plan's "One-Time Filter"). One on the row would keep VACUUM from the page as long as it waits.
func rowsSQL(r dialects.Request, t *texts, joined bool, fails verdict) string {
	lock, count, order := "select 1 from "+t.table+t.where, "count(*)", ""
	if len(r.Values) > 1 {
		lock, count, order = "select "+t.column+" from "+t.table+t.where, "count(distinct locked)", " order by 1"
	}
	mode := rowLock(r)
	switch {
	case r.Try && mode != "":
		lock += " and " + passedSQL + order + mode + " skip locked"
	case r.Try:
		lock += " and " + passedSQL + order
	case together(r):
		lock += " and (select " + sqltext.Pass(r, sqltext.Passing, "$1") + " is not null)" + mode
	default:
		lock += order + mode
	}
	answer := count
	if fails != never {
		missed := count + " < " + strconv.Itoa(len(r.Values))
		if fails == ifPassed {
			missed += " and " + passedSQL
		}
		answer = "case when " + missed + " then " + failSQL(others) + " else " + count + " end"
	}
	switch {
	case r.Try && joined:
		answer += ", " + shownSQL("$2", "$3", count+" > 0 and ")
	case joined:
		answer += ", " + restored("client_connection_check_interval") + ", case when strpos(" +
			"current_setting('txlock.application_name'), $2::text) = 0 then " + restored("application_name") + " end"
	}
	if !r.Try {
		answer += ", " + restored("lock_timeout")
	}
	return "select " + answer + " from (" + lock + ") rows (locked)"
}

// rowLock is how rows are locked; empty: not at all.
//
// Who shares a slot passes its queue lock in shared form, and locks no row: that writes nothing,
// takes no transaction number and holds nobody back. The exclusive form excludes it. Everybody who
// locks the slot alone has that until the end of the transaction. The row is read all the same: a
// table that is missing, or seeded otherwise, must not go unnoticed.
//
// NO KEY UPDATE lets rows be inserted that refer to one: their foreign keys ask for KEY SHARE. It
// excludes UPDATE, DELETE, FOR UPDATE and itself all the same (manual, section 13.3.2).
func rowLock(r dialects.Request) string {
	switch {
	case r.AnyOne != "", r.Shared && r.Slots > 0:
		return ""
	case r.Shared:
		return " for share"
	case r.Ours:
		return " for update"
	}
	return " for no key update"
}

// anyOneSQL takes the first row of the list that is free. A row of another semaphore, in a table
// that was made anew, is none of them. The CASE keeps the server from trying it first.
func anyOneSQL(r dialects.Request, t *texts, joined bool) string {
	shown := "null"
	if joined {
		shown = shownSQL("$3", "$4", "")
	}
	return "select n::text, " + shown + " from (select n from unnest($1::int[]) n where case when exists " +
		"(select from " + t.table + " own where own.id = n and own.hash = $2) then " +
		sqltext.Pass(r, sqltext.Trying, "n") + " end limit 1) permit"
}
