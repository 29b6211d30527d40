package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// Who shares a slot passes its turnstile in shared form, and locks no row: that writes nothing,
// takes no transaction number and holds nobody back. The exclusive form excludes it. Everybody who
// locks the slot alone has that until the end of the transaction, with one exception: of more rows
// than a request has turnstiles, those beyond. For these there is a second gate.

// passesWideGate tells whether the wide gate is the first of the request's turnstiles.
func passesWideGate(request dialects.Request) bool {
	return request.Slots > 0 && (request.Shared || isWide(request))
}

// isWide tells whether request has rows without a turnstile.
func isWide(request dialects.Request) bool { return len(request.Values) > maxTurnstiles }

// locksRows tells whether request locks rows besides its turnstiles. A row that is only read is
// read all the same: a table that is missing, or seeded otherwise, must not go unnoticed.
func locksRows(request dialects.Request) bool {
	return request.Permit == nil && (!request.Shared || request.Slots == 0 || isWide(request))
}

// primarySQL is the condition under which an advisory lock excludes: a standby grants it apart from
// its primary. A transaction of ours is READ WRITE, which a standby refuses.
const primarySQL = "not pg_is_in_recovery()"

// explainStandby is failed, unless request asks for an advisory lock that excludes, and the server
// is a standby.
func (q querier) explainStandby(ctx context.Context, request dialects.Request, failed error) error {
	const readOnly = "25006" // FOR SHARE
	state := server.State(failed)
	if !request.Shared && request.Permit == nil ||
		!errors.Is(failed, dialects.ErrIsolation) && state != readOnly &&
			state != server.NotSupported { // BEGIN READ WRITE
		return failed
	}
	columns, err := q.Run(ctx, sqltext.Script{{SQL: "select coalesce(host(inet_server_addr()) || ':' || " +
		"inet_server_port(), 'on a socket of this machine') where pg_is_in_recovery()"}})
	if err != nil || len(columns[0]) == 0 {
		return failed
	}
	return fmt.Errorf("%w: the server %s is a standby, where this lock excludes nobody: connect to the primary, with "+
		"target_session_attrs=read-write say", dialects.ErrUnsafeEngine, columns[0][0])
}
