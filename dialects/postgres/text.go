package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
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
// row that came meanwhile would be missed. That does not matter for one row of our own, which
// nobody changes: see rowsSQL.
func lockScript(request dialects.Request, on way, limit time.Duration, bounded bool) (s sqltext.Script, at answers,
	err error,
) {
	t, values, err := textsOf(request, on)
	if err != nil {
		return nil, at, err
	}
	s = make(sqltext.Script, 0, 9+len(on.behind.Script))
	set := sqltext.Statement{SQL: t.set[bounded], Args: make([]string, 0, 5), Silent: !on.joined}
	rows := sqltext.Statement{SQL: t.rows, Args: append(make([]string, 0, 4), values)}
	shown := label.Of(request)
	if request.AnyOne != "" && request.Try {
		rows.Args = append(rows.Args, request.AnyOne)
	}
	switch {
	case !on.joined:
		set.Args = append(set.Args, sqltext.Milliseconds(request.Lease), clientCheck, label.Begin+shown, on.mark)
	case request.Try:
		rows.Args = append(rows.Args, label.Begin, shown)
	default:
		set.Args = append(set.Args, clientCheck, label.Begin, shown)
		rows.Args = append(rows.Args, label.Begin)
	}
	if !request.Try {
		set.Args = append(set.Args, sqltext.Milliseconds(limit))
	}
	if on.joined {
		s = append(s, client.WaitSavepoint, set)
	} else {
		s = append(s, client.Begin, set)
	}
	if t.queue != "" {
		at.passed = len(s)
		s = append(s, sqltext.Statement{
			SQL: t.queue, Args: []string{queueLocks(request).argument(request)}, Silent: !on.joined && !request.Try,
		})
	}
	at.rows = len(s)
	s = append(s, rows)
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
	if request.Work.Looks() {
		s = append(s, scriptOf(*request.Work.Look)...)
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

var clientCheck = sqltext.Milliseconds(client.ClientCheck)

// queued are the numbers of queue locks, in the order in which every session passes them.
//
// In front of a row of the caller's a queue lock makes the order of the queue, and nothing else:
// its number is a hash, and a table that is spelled in two ways has two of them. In front of a row
// of our own table it also keeps others out while a held lock is renewed. So its numbers come from
// the server: the table's, whichever way it is spelled, and the row's.
type queued []int64

func queueLocks(request dialects.Request) queued {
	numbers := make(queued, len(request.Values))
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

func (q queued) argument(request dialects.Request) string {
	if len(request.Values) == 1 && !request.Try {
		return strconv.FormatInt(q[0], 10)
	}
	return sqltext.ArrayOf(q)
}

// shape is what the texts of a lock depend on.
type shape struct {
	table, column        string
	slots, values        int
	ours, shared, permit bool
	try, joined          bool
	fails                verdict
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

// texts are the statements of a lock. They are constant: prepared statements serve them, and to put
// them together would take longer than to lock.
type texts struct {
	table, column, where string          // quoted
	set                  map[bool]string // by whether the wait is bounded; see limitOf
	queue                string          // empty: in rows
	rows                 string
}

// known are texts, by their shapes. A program has some for each of its tables, and for each number
// of values.
var known = struct {
	sync.Mutex
	texts map[shape]*texts
}{texts: make(map[shape]*texts)}

const mostKnown = 1000

// textsOf also returns the argument that has the values.
func textsOf(request dialects.Request, on way) (t *texts, values string, err error) {
	s := shape{
		request.Table, request.Column, request.Slots, len(request.Values), request.Ours, request.Shared,
		request.AnyOne != "", request.Try, on.joined, never,
	}
	if on.joined || on.behind.list != nil {
		s.fails = always
		if s.try && s.values == 1 && on.nest == "" && on.behind.list == nil && !on.blind {
			s.fails = ifPassed
		}
	}
	known.Lock()
	defer known.Unlock()
	if t = known.texts[s]; t == nil {
		if t, err = s.texts(); err != nil {
			return nil, "", err
		}
		if len(known.texts) == mostKnown {
			clear(known.texts)
		}
		known.texts[s] = t
	}
	list := make([]string, len(request.Values))
	for i, value := range request.Values {
		list[i] = value.Text
		switch {
		case value.Binary:
			list[i] = fmt.Sprintf(`\x%x`, value.Text)
		case strings.ContainsRune(value.Text, 0) || !utf8.ValidString(value.Text):
			return nil, "", dialects.RefusedError{Err: fmt.Errorf("value %.100q of %s: text in PostgreSQL is valid "+
				"UTF-8 without NUL; give a []byte for a bytea column", value.Text, t.column)}
		}
	}
	if len(list) == 1 && !(s.permit && s.try) {
		return t, list[0], nil
	}
	return t, sqltext.ArrayOf(list), nil
}

func (s shape) texts() (t *texts, err error) {
	t = &texts{set: settings(s.joined, s.try)}
	if t.table, err = sqltext.QuoteTable(s.table); err != nil {
		return nil, err
	}
	if t.column, err = sqltext.QuoteColumn(s.column); err != nil {
		return nil, err
	}
	if t.where = " where " + t.column + " = any($1)"; s.values == 1 { // the server plans an array anew each time
		t.where = " where " + t.column + " = $1"
	}
	if s.slots > 0 {
		t.where += " and slots = " + strconv.Itoa(s.slots)
	}
	if s.permit && s.try {
		t.rows = s.permitSQL(t)
		return t, nil
	}
	if !s.together() {
		t.queue = s.queueSQL()
	}
	t.rows = s.rowsSQL(t)
	return t, nil
}

// together tells whether the queue lock is in the statement of the row.
func (s shape) together() bool { return s.ours && s.values == 1 && !s.try }

// request is one for the functions of sqltext.
func (s shape) request() dialects.Request {
	return dialects.Request{Table: s.table, Ours: s.ours, Shared: s.shared}
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

// settings prepare a wait. Unless it is bounded, the limit of the session is kept, if any. A
// joined lock waits for nothing, and locks nothing, where the snapshot of the transaction is older
// than the wait, and on a standby, which grants an advisory lock apart from its primary.
func settings(joined, try bool) map[bool]string {
	text, limit := "", "$5"
	setting := func(name, value string) {
		text += ", " + sqltext.Set("txlock."+name, "current_setting('"+name+"')") + ", " + sqltext.Set(name, value)
	}
	if !joined {
		text = "select " + client.LeaseSQL("$1", "$2") + ", " + sqltext.Set(client.MarkSetting, "$4") + ", " +
			sqltext.Set("application_name", "left(left("+nameSQL+", 20) || $3, 50)")
	} else {
		limit = "$4"
		text = "select case when current_setting('transaction_isolation') not in ('read committed', " +
			"'read uncommitted') or pg_is_in_recovery() then " + failSQL(unsuitable) + " end"
	}
	if try { // nobody waits, and what is joined is shown when it is there
		return map[bool]string{false: text, true: text}
	}
	if joined {
		setting("client_connection_check_interval", "$1")
		setting("application_name", furtherSQL("$2", "$3"))
	}
	before := text
	setting("lock_timeout", limit)
	bounded := text
	text = before
	setting("lock_timeout", "coalesce(nullif(current_setting('lock_timeout'), '0'), "+limit+")")
	return map[bool]string{false: text, true: bounded}
}

func restored(setting string) string {
	return sqltext.Set(setting, "current_setting('txlock."+setting+"')")
}

func (s shape) queueSQL() string {
	if s.values == 1 && !s.try {
		return "select " + sqltext.Pass(s.request(), sqltext.Passing, "$1")
	}
	from := " from unnest($1::bigint[]) t"
	if s.ours {
		from = " from unnest($1::int[]) t"
	}
	if s.try {
		all := "bool_and(" + sqltext.Pass(s.request(), sqltext.Trying, "t") + ")::text"
		return "select " + sqltext.Set(passedSetting, all) + from
	}
	return "select count(" + sqltext.Pass(s.request(), sqltext.Passing, "t") + ")" + from // in the order of the list
}

// passedSetting says whether a try has passed its queue locks. A try that has not must not touch
// the row either: while it does, the row is locked for the one that has passed. Of several tries at
// the same time, none would get the lock.
const (
	passedSetting = "txlock.passed"
	passedSQL     = " and current_setting('" + passedSetting + "', true) = 'true'"
)

// rowsSQL locks the rows, counts them, and ends the settings of the wait. A queue lock in it is a
// condition that is about no row: the server looks at that once, before it begins to scan (the
// plan's "One-Time Filter"). One on the row would keep VACUUM from the page as long as it waits.
func (s shape) rowsSQL(t *texts) string {
	lock, count := "select 1 from "+t.table+t.where, "count(*)"
	if s.values > 1 {
		lock, count = "select "+t.column+" from "+t.table+t.where, "count(distinct locked)"
	}
	switch {
	case s.try:
		lock += passedSQL
	case s.together():
		lock += " and (select " + sqltext.Pass(s.request(), sqltext.Passing, "$1") + " is not null)"
	}
	if s.values > 1 {
		lock += " order by 1"
	}
	if mode := rowLock(s.ours, s.shared, s.permit, s.slots); mode != "" {
		lock += mode
		if s.try {
			lock += " skip locked"
		}
	}
	answer := count + "::text"
	if s.fails != never {
		fails := count + " < " + strconv.Itoa(s.values)
		if s.fails == ifPassed {
			fails += passedSQL
		}
		answer = "case when " + fails + " then " + failSQL(others) + " else " + count + " end"
	}
	switch {
	case s.try && s.joined:
		answer += ", " + shownSQL("$2", "$3", count+" > 0 and ")
	case s.joined:
		answer += ", " + restored("client_connection_check_interval") + ", case when strpos(" +
			"current_setting('txlock.application_name'), $2::text) = 0 then " + restored("application_name") + " end"
	}
	if !s.try {
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
func rowLock(ours, shared, permit bool, slots int) string {
	switch {
	case permit, shared && slots > 0:
		return ""
	case shared:
		return sqltext.ForShare
	case ours:
		return " for update"
	}
	return sqltext.ForNoKeyUpdate
}

// permitSQL takes the first row of the list that is free. A row of another semaphore, in a table
// that was made anew, is none of them. The CASE keeps the server from trying it first.
func (s shape) permitSQL(t *texts) string {
	shown := "null"
	if s.joined {
		shown = shownSQL("$3", "$4", "")
	}
	return "select n::text, " + shown + " from (select n from unnest($1::int[]) n where case when exists " +
		"(select from " + t.table + " own where own.id = n and own.hash = $2) then " +
		sqltext.Pass(s.request(), sqltext.Trying, "n") + " end limit 1) permit"
}
