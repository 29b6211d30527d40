package postgres

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
)

// queueLocks are the numbers of queue locks, in the order in which every session passes them. In
// front of a caller's row, one makes the order of the queue alone: its number is a hash, and a
// table that is spelled in two ways has two. In front of a row of our own it also keeps others out
// while a held lock is renewed: so it has the row's number, and the server's of the table.
func queueLocks(request dialects.Request) []int64 {
	numbers := make([]int64, len(request.Values))
	for i, row := range request.Values {
		if request.Ours {
			numbers[i], _ = strconv.ParseInt(row.Text, 10, 32) // else the row's statement fails
		} else {
			numbers[i] = queueLock(request.Table, request.Column, row.Text)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// queueLock is the number of the queue lock in front of a row of the caller's.
func queueLock(table, column, value string) int64 {
	h := fnv.New64a()
	h.Write([]byte("txlock\x00" + table + "\x00" + column + "\x00" + value))
	return int64(h.Sum64())
}

// passSQL calls a function of the server's for the number of a queue lock. The lock ends with the
// transaction where the function's name has xact, else with the session.
func passSQL(request dialects.Request, function, number string) string {
	if request.Shared {
		function += "_shared"
	}
	if request.Ours {
		number = server.NumberOf(request.Table) + ", " + number + "::int"
	}
	return "pg_catalog." + function + "(" + number + ")"
}

// each makes rows of an array of numbers, in its order.
func each(list string) string { return " from unnest(" + list + "::bigint[]) t" }

// A session shows its label behind the application's name until the end of the transaction: every
// role sees that name in pg_stat_activity. The server cuts it at 63 bytes, of which the last 13 are
// kept for a renewal: see label.Since.
const (
	nameSQL  = "current_setting('application_name')"
	labelSQL = "left(left(" + nameSQL + ", 20) || $1::text, 50)"
)

// furtherSQL shows a further lock of the same transaction, if there is room.
func furtherSQL(label string) string {
	return server.Set("application_name", "case when strpos("+nameSQL+", "+label+"::text) = 0 and length("+nameSQL+
		" || "+label+") < 50 then "+nameSQL+" || ' ' || "+label+" else "+nameSQL+" end")
}

// suitsSQL fails where the snapshot of a caller's transaction is older than the wait, and on a
// standby, which grants an advisory lock apart from its primary: nothing is waited for then.
var suitsSQL = "case when current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') or " +
	"pg_is_in_recovery() then " + failSQL(errSnapshot) + " end"

// checkSQL is how often the server looks whether a waiter's client is still there: else a dead one
// would stay in the queue. It starts that timer with a statement, so an earlier one sets it.
const checkSQL = "'500ms'"

// leaseSQL sets what ends a session whose client is gone, as long as the transaction lasts. The
// server's timer counts idle time; where a client has stopped reading a large result, its kernel
// counts.
func leaseSQL(lease string) string {
	return server.Set("idle_in_transaction_session_timeout", lease) + ", " + server.Set("tcp_user_timeout", lease) +
		", " + server.Set("client_connection_check_interval", checkSQL)
}

// settingsSQL prepares a wait. $1 is the label; own and carrying have lease and mark next. The last
// two bound it: a limit of the session's own is kept where it is shorter, and nobody asked for one.
func settingsSQL(w how, try bool) string {
	var calls []string
	limit, bounded := "$2", "$3"
	switch w {
	case own, carrying:
		calls = []string{
			server.Set("application_name", labelSQL), leaseSQL("$2"), server.Set(markSetting, "$3"),
		}
		limit, bounded = "$4", "$5"
	case joined, nested:
		if try {
			return ""
		}
		calls = []string{furtherSQL("$1")}
	case guest:
		calls = []string{suitsSQL}
	}
	during := []string{
		"case when " + bounded + "::boolean or current_setting('lock_timeout') = '0' or " +
			"current_setting('lock_timeout')::interval > " + limit + "::text::interval then " + limit +
			" else current_setting('lock_timeout') end",
		labelSQL, checkSQL,
	}
	for i, setting := range ofTheWait(w, try) {
		calls = append(calls, server.Set("txlock."+setting, "current_setting('"+setting+"')"),
			server.Set(setting, during[i]))
	}
	return "select " + strings.Join(calls, ", ")
}

// ofTheWait are settings that are restored behind the wait.
func ofTheWait(w how, try bool) []string {
	switch settings := []string{"lock_timeout", "application_name", "client_connection_check_interval"}; {
	case try:
		return nil
	case w == guest:
		return settings
	default:
		return settings[:1]
	}
}

// together tells whether the queue lock is in the statement of the row. See [attempt].
func together(r dialects.Request) bool { return r.Ours && len(r.Values) == 1 && !r.Try }

// rowsSQL locks the rows, counts them, and ends the settings of the wait. A try passes its queue
// locks in it, and counts -1 where it has not: then it must not touch the row. While it did, that
// would be locked for the one that has, and none of several would get it. With fewer rows than were
// named the server fails where something travels behind that must not come without the lock. A
// joined try of one row that has not passed has taken nothing, and an error of the server's would
// stand in its log.
//
// The queue lock of a wait in it is a condition that is about no row: the server looks at that
// once, before it begins to scan (the plan's "One-Time Filter"). One on the row would keep VACUUM
// from the page as long as it waits.
func rowsSQL(r dialects.Request, t *texts, w how) string {
	lock, count := "select 1 from "+t.table+t.where, "count(*)"
	if t.list {
		lock, count = "select "+t.column+" from "+t.table+t.where+" order by 1", "count(distinct locked)"
	}
	if together(r) {
		lock += " and (select " + passSQL(r, "pg_advisory_xact_lock", "$1") + " is not null)"
	}
	lock += rowLock(r)
	if r.Try && rowLock(r) != "" {
		lock += " skip locked"
	}
	count = "select " + count + " from (" + lock + ") rows (locked)"
	missed := " < " + strconv.Itoa(len(r.Values))
	if r.Try {
		passed := "select bool_and(" + passSQL(r, "pg_try_advisory_xact_lock", "t") + ")" + each("$2")
		count = "select case when (" + passed + ") then (" + count + ") else -1 end"
		if !t.list && (w == joined || w == guest) {
			missed = " = 0"
		}
	}
	answer := "n"
	if w != own {
		answer = "case when n" + missed + " then " + failSQL(locktable.ErrRows) + " else n end"
	}
	for _, setting := range ofTheWait(w, r.Try) {
		answer += ", " + server.Set(setting, "current_setting('txlock."+setting+"')")
	}
	if r.Try && (w == joined || w == nested) {
		answer += ", case when n > 0 then " + furtherSQL("$3") + " end"
	}
	return "select " + answer + " from (" + count + ") counted (n)"
}

// rowLock is how rows are locked; empty: not at all.
//
// Who shares a slot passes its queue lock in shared form, and locks no row: that writes nothing,
// takes no transaction number and holds nobody back. Who locks the slot alone has the exclusive
// form until the end of the transaction. The row is read all the same: a table that is missing, or
// seeded otherwise, must not go unnoticed.
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

// freeSQL locks the first rows of a condition of the caller's that are free. The server compares a
// row that was changed since the snapshot with the condition again. Where may end in a comment,
// hence the line break. Its ORDER BY would take a result of the column's name for the column, hence
// txlock_key.
func freeSQL(r dialects.Request, t *texts) string {
	return fmt.Sprintf("select %s::pg_catalog.text as txlock_key from %s where %s\nlimit %d%s skip locked", t.column,
		t.table, r.Work.Free.Where, r.Work.Free.Limit, rowLock(r))
}

// anyOneSQL takes the first row of the list that is free. A row of another semaphore, in a table
// that was made anew, is none of them. The CASE keeps the server from trying it first.
func anyOneSQL(r dialects.Request, t *texts) string {
	return "select n::text from (select n from unnest($1::int[]) n where case when exists " +
		"(select from " + t.table + " own where own.id = n and own.hash = $2) then " +
		passSQL(r, "pg_try_advisory_xact_lock", "n") + " end limit 1) permit"
}

// fence is the texts by which tokens are drawn. A run of the server lasts until it crashes, or a
// standby is promoted. Counts come from a sequence.
//
// A rollback does not undo nextval. But the server writes it to the log without waiting for the
// disk: after a crash the sequence may give out counts again. So runs has the epoch of this run and
// the count at which it began, and epochs has the server whose run it is: see serverSQL. On any
// other no token comes. The next holder draws an epoch from epochs, an ordinary table, in a
// transaction that waits for the disk and for synchronous standbys. Then it writes it to runs in
// another: in one whose wait for a standby was broken off, it would be visible all the same.
//
// Runs is unlogged: a crash empties it, and the promotion of a standby (manual, CREATE TABLE,
// UNLOGGED). Not so on Aurora, where such tables outlive both.
type fence struct{ token, draw, number string }

// serverSQL tells this run of this server from all others: by when the server was started, and by
// when its statistics began, which is anew after each crash, also of one of its processes. Before
// PostgreSQL 15 to ask for the latter takes milliseconds, and runs has been emptied. Any role may
// ask for both. A reset of the statistics costs an epoch.
const serverSQL = "array[pg_postmaster_start_time(), case when current_setting('server_version_num')::int >= 150000 " +
	"then pg_stat_get_bgwriter_stat_reset_time() end]"

// fenceOf makes them for a lock table of that name, which Find has made.
//
// The token is sent behind the statement that locks the rows. Within that, the server would
// evaluate it before the wait. It fails without an epoch, or a count left, and out of range.
func fenceOf(table string) fence {
	beside, _ := server.Beside(table)
	epochs, runs, sequence := beside(locktable.Epochs), beside(locktable.Runs), beside(server.Tokens)
	// Whether a row of runs is of this server. Somebody's operator could fit arrays better.
	here := func(run string) string {
		return "(select server from " + epochs + " drawn where drawn.epoch = " + run +
			".epoch) operator(pg_catalog.=) " + serverSQL
	}
	// Lower levels do not wait for the disk, or not for synchronous standbys.
	alone := "set local synchronous_commit = on;\nlock table " + epochs + " in share row exclusive mode;\n"
	return fence{
		token: "select coalesce((select (epoch * " + strconv.Itoa(1<<fencing.CountBits) + " + count)::text " +
			"from (select epoch, nextval(" + server.Literal(sequence) + ") - start as count from " + runs +
			" run where " + here("run") + ") drawn where count < " + strconv.Itoa(fencing.Spent) + "), (" +
			failSQL(fencing.ErrNoRun) + ")::text)",
		// A logical replica has the rows of its publisher, and not how far their numbers were
		// drawn.
		draw: alone + identifier.Qualified("insert into "+epochs+" (epoch) overriding system value select "+
			"coalesce(max(epoch), 0) + 1 from "+epochs+" returning epoch::text"),
		number: alone + identifier.Qualified("with run as (insert into "+runs+" as former select true, $1::bigint, "+
			"last_value - 1 from "+sequence+
			" where not exists (select from "+epochs+" where epoch > $1::bigint and begun) "+
			"on conflict (running) do update set epoch = excluded.epoch, start = excluded.start where "+
			"excluded.start - former.start >= "+strconv.Itoa(fencing.Spent-1)+" or ("+here("former")+
			") is not true returning epoch) update "+epochs+" set begun = true, server = "+serverSQL+
			" where epoch in (select epoch from run)"),
	}
}
