package postgres

import (
	"slices"
	"strconv"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
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
		return function + "(" + numberSQL(request.Table) + ", " + number + ")"
	}
	return function + "(" + number + ")"
}

// numberSQL is the table's number. A prepared statement looks it up anew when the table is made
// anew.
func numberSQL(table string) string {
	quoted, _ := sqltext.QuoteTable(table) // the row's statement has the error
	return sqltext.Literal(quoted) + "::regclass::oid::int"
}

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
		numbers = append(numbers, sqltext.WideGate)
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
	return sqltext.Turnstile(request.Table, request.Column, row.Text)
}

// gateStatement passes the gate, for a request that has rows without a turnstile.
func gateStatement(request dialects.Request) sqltext.Statement {
	if !request.Ours || !isWide(request) {
		return sqltext.Statement{}
	}
	pass := passSQL(request, "pg_advisory_xact_lock_shared", strconv.Itoa(sqltext.Gate))
	return sqltext.Statement{SQL: "select " + pass}
}
