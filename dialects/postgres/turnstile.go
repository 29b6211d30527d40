package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
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

// turnstilesOf are the turnstiles in front of the rows, in the order in which every session passes
// them.
func turnstilesOf(request dialects.Request) []int64 {
	numbers := make([]int64, len(request.Values))
	for i, row := range request.Values {
		numbers[i] = turnstileOf(request, row)
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

// locksRows tells whether request locks rows besides its turnstiles.
//
// Who shares a slot passes its turnstile in shared form, and locks no row: that writes nothing,
// takes no transaction number and holds nobody back. The exclusive form excludes it. Everybody who
// locks the slot alone has that until the end of the transaction. The row is read all the same: a
// table that is missing, or seeded otherwise, must not go unnoticed.
func locksRows(request dialects.Request) bool {
	return request.AnyOne == "" && (!request.Shared || request.Slots == 0)
}

// primarySQL is the condition under which an advisory lock excludes: a standby grants it apart from
// its primary. A transaction of ours is READ WRITE, which a standby refuses.
const primarySQL = "not pg_is_in_recovery()"

// explainStandby is failed, unless request asks for an advisory lock that excludes, and the server
// is a standby.
func (q querier) explainStandby(ctx context.Context, request dialects.Request, failed error) error {
	const readOnly = "25006" // FOR SHARE
	state := server.State(failed)
	if !request.Shared && request.AnyOne == "" ||
		!errors.Is(failed, dialects.ErrIsolation) && state != readOnly &&
			state != server.NotSupported { // BEGIN READ WRITE
		return failed
	}
	columns, err := q.Run(ctx, sqltext.Script{{SQL: "select coalesce(host(inet_server_addr()) || ':' || " +
		"inet_server_port()::text, 'on a socket of this machine') where pg_is_in_recovery()"}})
	if err != nil || len(columns[0]) == 0 {
		return failed
	}
	return fmt.Errorf("%w: the server %s is a standby, where this lock excludes nobody: connect to the primary, with "+
		"target_session_attrs=read-write say", dialects.ErrUnsafeEngine, columns[0][0])
}
