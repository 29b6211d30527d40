package postgres

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
)

// A turnstile is an advisory lock in front of a row, taken in one order by every session.
//
// In front of a row of the caller's it makes the order of the queue, and nothing else: its number
// is a hash, and a table that is spelled in two ways has two of them. In front of a row of our own
// table it also keeps others out while a held lock is renewed. So its numbers come from the server:
// the table's, whichever way it is spelled, and the row's.

// The functions that pass a turnstile. The first two hold it until the end of the transaction, the
// others as long as the session lives or wants. Each has a shared form; see form.
const (
	passing   = "pg_advisory_xact_lock"
	trying    = "pg_try_advisory_xact_lock"
	keeping   = "pg_advisory_lock"
	unkeeping = "pg_advisory_unlock"
)

// passSQL calls one of them for a number.
func passSQL(request dialects.Request, function, number string) string {
	if request.Ours {
		return function + "(" + numberSQL(request) + ", " + number + ")"
	}
	return function + "(" + number + ")"
}

// numberSQL is the table's number. A prepared statement looks it up anew when the search_path is
// another, or the table is made anew. Where the name means another table than it did when it was
// looked up, it is a division by zero, before anything is locked: see explainTable. The server
// computes it when it plans the statement.
func numberSQL(request dialects.Request) string {
	quoted, _ := quoteTable(request.Table) // the row's statement has the error
	number := literal(quoted) + "::regclass::oid"
	if request.TableID == "" {
		return number + "::int"
	}
	return "(" + request.TableID + "::oid::int / (" + number + " = " + request.TableID + ")::int)"
}

// meantSQL is the table that quoted means here, as Request.TableID has it.
func meantSQL(quoted string) string { return literal(quoted) + "::regclass::oid::text" }

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// numberType is the type of turnstileOf.
func numberType(request dialects.Request) string {
	if request.Ours {
		return "int"
	}
	return "bigint"
}

// maxTurnstiles bounds the advisory locks of one request. The server sizes its lock table for
// max_locks_per_transaction (64) locks of each of its connections. 1000 keys at once must not
// exhaust it for others.
const maxTurnstiles = 32

// turnstilesOf are the turnstiles in front of the rows, in the order in which every session passes
// them.
func turnstilesOf(request dialects.Request) []int64 {
	rows := request.Values[:min(len(request.Values), maxTurnstiles)]
	numbers := make([]int64, 0, len(rows)+1)
	if passesWideGate(request) {
		numbers = append(numbers, wideGate)
	}
	for _, row := range rows {
		numbers = append(numbers, turnstileOf(request, row))
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// turnstileOf is a row's turnstile: the number of our own row, else a hash.
func turnstileOf(request dialects.Request, row dialects.Value) int64 {
	if request.Ours {
		number, err := strconv.ParseInt(row.Text, 10, 32)
		if err != nil {
			panic("bug: a row of our own without a number: " + err.Error())
		}
		return number
	}
	h := fnv.New64a()
	h.Write([]byte("txlock\x00" + request.Table + "\x00" + request.Column + "\x00" + row.Text))
	return int64(h.Sum64())
}

// gate is the number of a lock beside the turnstiles of our own table, whose rows have numbers from
// 0. A request of more rows than turnstiles shares it until the end of its transaction. A renewal,
// which for a moment has no more than the turnstiles of its rows, must have it alone.
const (
	gateNumber = -1
	gate       = "-1"
)

func gateStatement(request dialects.Request) statement {
	if !request.Ours || !isWide(request) {
		return statement{}
	}
	return statement{sql: "select " + passSQL(request, "pg_advisory_xact_lock_shared", gate)}
}
