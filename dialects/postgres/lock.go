package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/missing"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/installation"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// querier runs scripts on one connection.
type querier struct{ client.Line }

// errAgain occurs when a wait has lasted for maxWait, or its row has moved to another partition. It
// is to be asked for again, at the end of the queue.
var errAgain = errors.New("the wait is to begin again")

// A statement that waits has a snapshot as long as it waits. VACUUM keeps what was deleted since,
// and CREATE INDEX CONCURRENTLY waits for it; if the holder of the lock runs that, they wait in a
// circle that the server does not see. So a wait ends after maxWait, and begins again. With a lease
// of less than 12 s it is five of them: where nobody is there to go on with a nested wait, its
// session is idle, and ends with all that it holds.
const (
	maxWait      = time.Minute
	leasesToWait = 5
)

func maxWaitOf(request dialects.Request) time.Duration {
	if request.Lease > 0 {
		return min(maxWait, leasesToWait*request.Lease)
	}
	return maxWait
}

// await sends the script that locks the rows of request, and waits for them. The server knows ctx's
// deadline.
func (q querier) await(ctx context.Context, request dialects.Request, on terms,
	sendLock func(context.Context, plan) ([][]string, error),
) (got dialects.Grant, err error) {
	limit, told := limitOf(ctx, request, on)
	on.limit = limit
	p, err := lockScript(request, on)
	if err != nil {
		return got, err
	}
	running := ctx
	if on.flight != nil { // the limit of the wait is the server's to keep
		running = request.Exec.Context
	}
	columns, asked, err := q.wait(running, request, told, on, func(ctx context.Context) ([][]string, error) {
		return sendLock(ctx, p)
	})
	state := server.State(err)
	moved := state == server.Serialization && on.as != foreign && !request.Ours // see explainMove
	var verdict error
	if on.as != owner || on.flight != nil {
		verdict = verdictOf(err)
	}
	overlong := asked && (state == server.QueryCanceled || server.Broken(err)) || limit > 0 && !told &&
		state == server.LockNotAvailable
	switch {
	case (overlong || moved) && running.Err() == nil:
		return got, errAgain
	case moved:
		return got, fmt.Errorf("%w: %w", dialects.ErrNotAcquired, err)
	case verdict != nil:
		return got, verdict
	case err != nil:
		return got, server.Classify(err, request)
	case on.blind:
		return got, nil
	}
	return p.read(request, on, columns)
}

// read judges the answers, and reads what comes with the rows.
func (p plan) read(request dialects.Request, on terms, columns [][]string) (got dialects.Grant, err error) {
	if p.turnstiles >= 0 {
		err = passed(request, columns[p.turnstiles])
	}
	switch {
	case err != nil:
	case request.AnyOne != "" && request.Try:
		if got.Row = strings.Join(columns[p.rows], ""); got.Row == "" {
			return got, errMissed
		}
	case on.as == owner:
		err = complete(request, columns[p.rows])
	}
	if err == nil && request.Fence != "" {
		got.Token, err = tokenOf(columns[p.token])
	}
	if err == nil && p.look >= 0 {
		got.Answer = columns[p.look]
	}
	return got, err
}

// limitOf is how long the server lets a wait last; 0: as long as it takes. Told says that it is
// until the deadline of ctx. Otherwise a nested wait has lasted for maxWait, and goes on.
func limitOf(ctx context.Context, request dialects.Request, on terms) (limit time.Duration, told bool) {
	limit = interrupt.Limit(ctx, request)
	onServer := on.as == guest || on.as == owner && on.flight != nil
	if longest := maxWaitOf(request); onServer && !request.Try && (limit == 0 || longest < limit) {
		return longest, false
	}
	return limit, limit > 0
}

// wait sends a script that may wait. Asked says that maxWait has ended it. A limit of the server's
// own would cost every lock more than a timer does; a nested wait has one, since its session has
// more to lose than an interrupt that does not arrive. In a transaction of the caller's it is the
// caller who bounds the wait.
func (q querier) wait(ctx context.Context, request dialects.Request, told bool, on terms,
	send func(context.Context) ([][]string, error),
) (columns [][]string, asked bool, err error) {
	bounded := ctx
	if on.as == owner && on.flight == nil && !request.Try {
		longest := maxWaitOf(request)
		deadline, limited := ctx.Deadline()
		if !limited || time.Until(deadline) > longest {
			var cancel context.CancelFunc
			bounded, cancel = context.WithTimeout(ctx, longest)
			defer cancel()
			told = false
		}
	}
	err = q.interrupted(bounded, told, on.as, func(ctx context.Context) (err error) {
		columns, err = send(ctx)
		return err
	})
	return columns, bounded.Err() != nil && ctx.Err() == nil, err
}

// interrupted runs a statement, and ends it on the server when ctx ends first.
func (q querier) interrupted(ctx context.Context, told bool, as role, statement func(context.Context) error) error {
	patience := interrupt.Patience
	if as != owner {
		patience = interrupt.GuestPatience
	}
	return interrupt.Await(ctx, told, patience, q.Interrupt, q.Cut, statement)
}

var errSnapshot = fmt.Errorf("%w: the transaction's snapshot is older than the lock, so it would read stale data "+
	"under it; begin it at READ COMMITTED", dialects.ErrIsolation)

// passed judges what the turnstiles answered.
func passed(request dialects.Request, turnstiles []string) error {
	if request.Try && slices.ContainsFunc(turnstiles, func(granted string) bool { return !server.IsTrue(granted) }) {
		return errMissed
	}
	return nil
}

// complete judges whether all rows were locked.
func complete(request dialects.Request, rows []string) error {
	distinct := make(map[string]struct{}, len(rows))
	for _, row := range rows {
		distinct[row] = struct{}{}
	}
	if len(distinct) < len(request.Values) {
		return missing.ErrRows
	}
	return nil
}

// explain turns missing.ErrRows into what it means: rows that do not exist, or that others hold.
func (q querier) explain(ctx context.Context, request dialects.Request, err error) error {
	state := server.State(err)
	if (state == server.UndefinedTable || state == server.UndefinedColumn) && request.Fence != "" {
		return installation.ExplainFence(ctx, q.Line, request.Fence, err)
	}
	if state == server.Serialization && errors.Is(err, dialects.ErrIsolation) && !request.Ours {
		return q.explainMove(ctx, err)
	}
	if state == server.DeadlockDetected {
		return explainDeadlock(err)
	}
	if !errors.Is(err, missing.ErrRows) {
		return q.explainStandby(ctx, request, err)
	}
	s, err := existScript(request)
	if err != nil {
		return err
	}
	columns, err := q.Run(ctx, s)
	if err != nil {
		return server.Classify(err, request)
	}
	return missing.Rows(request, columns[0])
}

// explainDeadlock adds who waited for whom, as the server says it.
func explainDeadlock(failed error) error {
	if detail := server.Detail(failed); detail != "" {
		return fmt.Errorf("%w (%s)", failed, strings.ReplaceAll(detail, "\n", " "))
	}
	return failed
}

// explainMove explains a serialization failure in a transaction of the caller's. At READ COMMITTED
// it has one cause: while the wait lasted, the row has moved to another partition. A new snapshot
// finds it there, or finds it gone, so the wait is begun again. The library's own transactions are
// all at READ COMMITTED.
func (q querier) explainMove(ctx context.Context, failed error) error {
	columns, err := q.Run(ctx, sqltext.Script{{SQL: "select " + isolationSQL}})
	if err == nil && server.IsTrue(columns[0][0]) {
		return errAgain
	}
	return failed
}

// tryGuestLock locks rows in a transaction that has more to lose than this lock. A savepoint keeps
// the transaction safe from every error. The wait may be errAgain.
func (q querier) tryGuestLock(ctx context.Context, request dialects.Request, on terms) (
	got dialects.Grant, err error,
) {
	guarded := q
	guarded.Line = q.BehindSavepoint()
	var failed error
	answered := 0
	f := on.flight
	send := func(ctx context.Context, p plan) (columns [][]string, err error) {
		s := p.Script
		if f != nil {
			s = f.behind(s, "")
		}
		columns, err = q.Run(ctx, s)
		if failed, answered = err, len(columns); f != nil {
			err = f.read(columns, err)
		}
		return columns, err
	}
	unsent := false
	on.blind = q.Blind || f != nil
	got, err = guarded.await(ctx, request, on, send)
	if f != nil {
		got.Affected, unsent, err = f.affected, f.unsent, f.result(request.Exec.Context, err)
	}
	switch state := server.State(failed); {
	case state == server.NoTransaction, !unsent && (flight{}).isBroken(failed):
		return got, dialects.Lost(err)
	case state == server.AbortedBefore, failed != nil && state == "" && answered == 0: // no savepoint is set
		return got, err
	case failed == nil:
		// The flight has released the savepoint, or has left it to the end of a Nest. A try that
		// missed has taken nothing.
		return got, err
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	return got, q.undo(clean, request, on, err, unsent)
}

// undo gives back what was locked before err, and every setting its value, unless it was a
// statement of the caller's that has failed. It takes two trips: before the rollback, nothing else
// can be prepared. The last statement has no snapshot; see dropSnapshot.
func (q querier) undo(ctx context.Context, request dialects.Request, on terms, err error, unsent bool) error {
	undo := client.UndoWait
	var work *dialects.StatementError
	if errors.As(err, &work) && !unsent {
		undo = sqltext.Silent("rollback to " + on.nest)
	}
	_, undone := q.Run(ctx, sqltext.Script{undo})
	if undone == nil {
		if work == nil {
			err = q.explain(ctx, request, err)
		}
		_, undone = q.Run(ctx, sqltext.Script{client.ReleaseWait})
	}
	if undone != nil {
		return dialects.Lost(fmt.Errorf("%w (%v)", undone, err))
	}
	return err
}
