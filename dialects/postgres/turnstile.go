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
	request.Shared = true
	return sqltext.Statement{SQL: "select " + sqltext.Pass(request, sqltext.Passing, strconv.Itoa(sqltext.Gate))}
}
