package postgres

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
)

// A script is what one round trip carries. Texts are few and constant, so that prepared statements serve them;
// what varies is in the arguments, always strings: PostgreSQL infers a parameter's type from the column it meets.
type script []statement

type statement struct {
	sql  string
	args []any
}

// What a session's settings are kept in while txlock changes them. Custom settings live in the session alone.
const (
	beginSQL = "begin isolation level read committed read write"

	// A deadline on the wait must not outlive the wait: the caller's own statements follow in the same transaction.
	limitSQL   = "select set_config('txlock.lock_timeout', current_setting('lock_timeout'), true), set_config('lock_timeout', $1, true)"
	unlimitSQL = "select set_config('lock_timeout', current_setting('txlock.lock_timeout'), true)"

	// Work that sends COMMIT or ROLLBACK itself goes on outside any transaction, where each statement would commit at
	// once and without the lock. So while work runs, the session's default is read only and only our own BEGIN says READ
	// WRITE. The setting must be committed before that BEGIN, or the work's own ROLLBACK would undo it.
	guardSQL = "select set_config('txlock.read_only', current_setting('default_transaction_read_only'), false), " +
		"set_config('default_transaction_read_only', 'on', false)"
	unguardSQL = "select set_config('default_transaction_read_only', coalesce(nullif(current_setting('txlock.read_only', true), ''), " +
		"current_setting('default_transaction_read_only')), false), set_config('txlock.read_only', '', false)"

	// A mark that lives as long as this transaction, and no other has.
	markSQL = "select set_config('txlock.held', $1, true)"

	isolationSQL = "current_setting('transaction_isolation') in ('read committed', 'read uncommitted')"
)

// commitSQL commits only the transaction that holds the mark; in any other the division by zero keeps COMMIT from
// being reached. One simple query, so that it costs one round trip.
func commitSQL(mark string) string {
	return "select 1 / (current_setting('txlock.held', true) is not distinct from '" + mark + "')::int; " + unguardSQL + "; commit"
}

// maxTurnstiles bounds the advisory locks of one request. The server sizes its lock table for
// max_locks_per_transaction (64) locks of each of its connections; 1000 keys at once must not exhaust it for others.
const maxTurnstiles = 32

// lockScript locks the rows of request in an open transaction.
//
// The row is the truth; the turnstile, an advisory lock of the same transaction taken before it, is the queue.
// PostgreSQL's row queue lets newcomers barge in between a commit and the wake-up of the first waiter (16 tight loops:
// 58 of 1600 out of order), while the lock manager grants an advisory lock to the first waiter in the act of
// releasing it. Order of locking: turnstiles by number, then rows by value, the same in every session, so that two
// requests cannot block each other.
//
// In a caller's own transaction (guest) nothing is waited for or locked under an isolation level whose snapshot is
// older than the wait.
func lockScript(request dialects.Request, timeout string, guest bool) (script, error) {
	rows, err := rowsOf(request)
	if err != nil {
		return nil, err
	}
	turnstiles := "pg_advisory_xact_lock"
	if request.Try {
		turnstiles = "pg_try_advisory_xact_lock"
	}
	where := ""
	if guest {
		where = " where " + isolationSQL
	}
	var s script
	if timeout != "" {
		s = append(s, statement{limitSQL, []any{timeout}})
	}
	if numbers := turnstilesOf(request); len(numbers) == 1 {
		s = append(s, statement{"select " + turnstiles + "($1)" + where, []any{strconv.FormatInt(numbers[0], 10)}})
	} else {
		s = append(s, statement{"select " + turnstiles + "(t) from unnest($1::bigint[]) t" + where, []any{arrayOf(numbers)}})
	}
	lock := "select " + rows.column + " from " + rows.table + rows.where
	if guest {
		lock += " and " + isolationSQL
	}
	if len(request.Values) > 1 {
		lock += " order by 1"
	}
	lock += " for update"
	if request.Try {
		lock += " skip locked"
	}
	s = append(s, statement{lock, []any{rows.values}})
	if timeout != "" {
		s = append(s, statement{sql: unlimitSQL})
	}
	return s, nil
}

// existScript reads which rows of request exist, without locking.
func existScript(request dialects.Request) (script, error) {
	rows, err := rowsOf(request)
	if err != nil {
		return nil, err
	}
	return script{{"select " + rows.column + "::text from " + rows.table + rows.where, []any{rows.values}}}, nil
}

type rowSet struct {
	table, column, where string
	values               string
}

func rowsOf(request dialects.Request) (rowSet, error) {
	table, err := quoteTable(request.Table)
	if err != nil {
		return rowSet{}, err
	}
	column, err := quoteIdentifier(request.Column, 1)
	if err != nil {
		return rowSet{}, err
	}
	rows := rowSet{table: table, column: column}
	texts := make([]string, len(request.Values))
	for i, value := range request.Values {
		if !value.Binary && (strings.ContainsRune(value.Text, 0) || !utf8.ValidString(value.Text)) {
			return rowSet{}, fmt.Errorf("value %.100q of %s: text in PostgreSQL is valid UTF-8 without NUL; give a []byte for a bytea column", value.Text, column)
		}
		texts[i] = value.Text
		if value.Binary {
			texts[i] = fmt.Sprintf(`\x%x`, value.Text)
		}
	}
	if len(texts) == 1 {
		rows.where, rows.values = " where "+column+" = $1", texts[0]
	} else {
		rows.where, rows.values = " where "+column+" = any($1)", arrayOf(texts)
	}
	if request.Slots > 0 {
		rows.where += " and slots = " + strconv.Itoa(request.Slots)
	}
	return rows, nil
}

// arrayOf is the text form of an array: elements in double quotes, with \ before " and \ (manual, section 8.15.6).
func arrayOf[T string | int64](elements []T) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, element := range elements {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		b.WriteString(arrayEscapes.Replace(fmt.Sprint(element)))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// turnstilesOf are the advisory locks in front of the rows, in the order in which every session takes them. A table
// that is spelled in two ways has two turnstiles, which costs the order of the queue and nothing else.
func turnstilesOf(request dialects.Request) []int64 {
	rows := request.Values[:min(len(request.Values), maxTurnstiles)]
	numbers := make([]int64, 0, len(rows))
	for _, row := range rows {
		h := fnv.New64a()
		h.Write([]byte("txlock\x00" + request.Table + "\x00" + request.Column + "\x00" + row.Text))
		numbers = append(numbers, int64(h.Sum64()))
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

func quoteTable(name string) (string, error) {
	return quoteIdentifier(name, 2)
}

func quoteIdentifier(name string, maxParts int) (string, error) {
	return dialects.QuoteIdentifier(name, '"', strings.ToLower, maxParts)
}

// schema is the SQL text that creates and seeds a lock table. The primary key is unnamed: the server finds a free name.
// Every row carries the number of slots: rows that are missing show, and a client that has an old number finds no row
// to lock instead of the wrong one. slots is 0 when the statements are for a table that has its number already.
func schema(table string, slots int) (create, seed string) {
	create = "CREATE TABLE IF NOT EXISTS " + table + " (\n" +
		"    slot integer NOT NULL PRIMARY KEY,\n" +
		"    slots integer NOT NULL,\n" +
		"    CHECK (slot >= 0 AND slot < slots)\n)"
	n := strconv.Itoa(slots)
	seed = "INSERT INTO " + table + " (slot, slots)\nSELECT slot, " + n + " FROM generate_series(0, " + n + " - 1) AS slot\n" +
		"ON CONFLICT DO NOTHING"
	return create, seed
}
