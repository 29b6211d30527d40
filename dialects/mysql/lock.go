package mysql

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/missing"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/kinds"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// errPatience occurs when the server has ended a nested wait, which is to go on.
var errPatience = errors.New("the nested wait has lasted for some leases")

// patienceOf is how long the server lets a nested call wait. Then it goes on to wait, at the end of
// the queue, if somebody is there to say so. Else its session is idle, and ends after the lease,
// with all that it holds.
func patienceOf(lease time.Duration) time.Duration { return min(5*lease, 150*time.Second) }

// place is where rows are locked.
type place struct {
	client.Link
	role role
	// patience is how long the server lets it wait for a lock; 0: as long as the context does.
	patience time.Duration
	flight   *flight // travels with the lock; nil: nothing does
	// cut closes the connection under a statement that interrupts do not end; nil: the end of the
	// statement's context does.
	cut func()
	// beat is where certify puts what a heartbeat sends; nil: no heartbeat is to come.
	beat *string
}

// interruptible is how long a wait there may ignore interrupts.
func (p place) interruptible() time.Duration {
	if p.role == owner {
		return interrupt.Patience
	}
	return interrupt.GuestPatience
}

// lock locks the rows of request. Front are statements in front of that.
func (d *Driver) lock(ctx context.Context, at place, request dialects.Request, front []string) (
	got dialects.Grant, err error,
) {
	if d.pool.Galera() {
		if err := keepsOnGalera(request); err != nil {
			return got, err
		}
	}
	if err := d.tables.Lockable(ctx, at.Querier, request, at.interruptible(), at.cut); err != nil {
		return got, err
	}
	if d.pool.Galera() && request.LockTable != nil {
		return d.lockRows(ctx, at, request, front)
	}
	fence := request.Fence
	if d.pool.Galera() { // where tokens are drawn behind the lock
		request.Fence = ""
	}
	limit, told, ours := d.limitOf(ctx, at, request)
	tag, running := client.NewTag(), ctx
	if at.flight != nil { // the limit of the wait is the server's to keep
		running = request.Exec.Context
	}
	label := labelOf(request)
	comment := sqltext.Comment(label, tag)
	script, send, err := d.lockScript(at, request, limit, label, comment)
	if err != nil {
		return got, err
	}
	if looks := request.Look != nil && at.flight == nil && !d.pool.Galera(); looks {
		look, err := kinds.StatementsOf(*request.Look)
		if err != nil {
			return got, err
		}
		script = append(script, look...)
		send = func(ctx context.Context, script ...string) (locked []string, err error) {
			locked, got.Answer, err = at.AskBoth(ctx, script...)
			return locked, err
		}
	}
	script = append(front, script...)
	var locked []string
	err = d.pool.Await(running, told, tag, at.interruptible(), at.cut, func(ctx context.Context) (err error) {
		locked, err = send(ctx, script...)
		return err
	})
	if ours && ctx.Err() == nil && isLimit(err) {
		return got, errPatience
	}
	if err != nil {
		if f, failed := fenceOf(request.Fence); failed == nil {
			if err = f.explain(request.Fence, err); errors.Is(err, dialects.ErrNotInstalled) {
				return got, err
			}
		}
		return got, server.Classify(err, request)
	}
	if request.AnyOne != "" && request.Try {
		return d.permitTaken(ctx, at, request, label, locked)
	}
	drawn := ""
	if n := len(locked) - 1; n >= 0 && request.Fence != "" {
		drawn, locked = locked[n], locked[:n]
	}
	if len(locked) < len(request.Values) || request.Slots == 0 && len(valuesOf(request, locked)) < len(request.Values) {
		return got, missing.ErrRows
	}
	if request.Fence != "" {
		if got.Token, err = tokenOf(drawn); err != nil {
			return got, err
		}
	}
	if d.pool.Galera() && request.Ours {
		if got.Token, err = d.certifyAndDraw(ctx, at, request, fence); err != nil {
			return got, server.Classify(err, request)
		}
	}
	if request.Look != nil && d.pool.Galera() {
		got.Answer, err = run(ctx, at.Link, *request.Look)
	}
	return got, err
}

// limitOf is the limit that a wait has on the server. Told says that it is the deadline of ctx, and
// ours that it is the patience of the place.
func (d *Driver) limitOf(ctx context.Context, at place, request dialects.Request) (
	limit time.Duration, told, ours bool,
) {
	limit = interrupt.Limit(ctx, request)
	switch {
	case request.Try:
		return 0, false, false
	case at.patience > 0 && (limit == 0 || at.patience < limit):
		return at.patience, false, true
	case limit == 0 && d.limited.Load():
		return interrupt.Longest, false, false
	}
	return limit, limit > 0, false
}

// cutShort tells whether a limit of the session's has ended a wait, which is not the caller's:
// max_execution_time, max_statement_time, or innodb_lock_wait_timeout, 50 s by default. Once one of
// the first two has, each wait brings a limit of its own in its place.
func (d *Driver) cutShort(ctx context.Context, request dialects.Request, err error) bool {
	switch {
	case request.Try || ended(ctx):
		return false
	case errors.Is(err, errOvertaken):
		breather()
		return true
	case isLimit(err):
		d.limited.Store(true)
		return true
	}
	return server.Number(err) == server.LockWaitTimeout
}

// permitTaken is the grant of the row that permitSQL has locked. A session with more to lose shows
// it in a query of its own: a KILL QUERY that falls between two statements gets no answer.
func (d *Driver) permitTaken(ctx context.Context, at place, request dialects.Request, label string, locked []string) (
	got dialects.Grant, err error,
) {
	if len(locked) == 0 {
		return got, fmt.Errorf("%w: no permit is free", dialects.ErrNotAcquired)
	}
	got.Row, _, _ = strings.Cut(locked[0], " ")
	if request.Fence != "" {
		if got.Token, err = tokenOf(locked[0]); err != nil {
			return got, err
		}
	}
	if value := d.valueOf(label, at.role); value != "" && at.role == guest {
		clean, cancel := interrupt.Detached(ctx)
		_, err = at.Run(clean, "SET @"+sqltext.Variable+" = "+value)
		cancel()
	}
	return got, err
}

// isLimit tells whether a limit of statements has ended a wait.
func isLimit(err error) bool {
	number := server.Number(err)
	return number == server.StatementTimeout || number == server.QueryTimeout
}

// sending sends a script, and returns what lockSQL does.
type sending func(ctx context.Context, script ...string) ([]string, error)

// lockScript is what lock sends, and how.
func (d *Driver) lockScript(at place, request dialects.Request, limit time.Duration, label, comment string) (
	script []string, send sending, err error,
) {
	patient := at.role != foreign && !d.pool.Owned // in a session of ours with settings of the caller's
	value, into := d.valueOf(label, at.role), ""
	if request.Slots > 0 && len(request.Values) == 1 && request.Fence == "" && request.Look == nil {
		into = value // costs the server less than a result set, where only the grant of one slot is asked for
	}
	clause := wait
	if request.Try {
		clause = sqltext.SkipLocked
	}
	query := ""
	switch {
	case request.AnyOne != "" && request.Try:
		if query, err = permitSQL(request, comment); err == nil && value != "" && at.role == owner && at.Several {
			return []string{query, "SET @" + sqltext.Variable + " = IF(FOUND_ROWS() > 0, " + value + ", @" +
				sqltext.Variable + ")"}, at.Ask, nil
		}
		return []string{query}, at.Ask, err
	case len(request.Values) > 0: // else all is held
		query, err = lockSQL(request, clause, limit, comment, into, patient)
	}
	switch {
	case err != nil:
		return nil, nil, err
	case at.flight != nil:
		return at.flight.script(query, comment), at.flight.send, nil
	case into != "":
		return []string{query}, onlyRow(at.Link, request), nil
	case at.Several && value != "":
		return []string{query, "SET @" + sqltext.Variable + " = " + value}, at.Ask, nil
	}
	return []string{query}, at.Ask, nil
}

// explain says more of why begin has failed: which of the rows exist, or which table is missing.
func (s *session) explain(ctx context.Context, request dialects.Request, failed error) error {
	failed = explainReadOnly(ctx, s.conn, request, failed)
	if !errors.Is(failed, missing.ErrRows) {
		return failed
	}
	query, err := existSQL(request)
	if err != nil {
		return err
	}
	existing, err := server.Column(ctx, s.conn, query)
	if err != nil {
		return server.Classify(err, request)
	}
	return missing.Rows(request, valuesOf(request, existing))
}

// guestLock locks rows in a transaction that has more to lose than this lock. The errors of single
// statements leave an InnoDB transaction and its locks alone, except that of a deadlock.
func (d *Driver) guestLock(ctx context.Context, at place, request dialects.Request, front []string) (
	got dialects.Grant, err error,
) {
	lock := d.lock
	if d.pool.Galera() {
		lock = d.lockInTries
	}
	got, err = lock(ctx, at, request, front)
	for at.role == guest && d.cutShort(ctx, request, err) && !(server.Number(err) == server.LockWaitTimeout &&
		rollsBackOnTimeout(context.WithoutCancel(ctx), at)) {
		got, err = lock(ctx, at, request, front)
	}
	if server.Number(err) == 0 && errors.Is(err, context.Canceled) || // the interrupt had no effect
		errors.Is(err, client.ErrUnreached) || server.Broken(err) || server.Aborted(err) {
		return got, server.Lost(err)
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	if server.Number(err) == server.LockWaitTimeout && rollsBackOnTimeout(clean, at) {
		return got, fmt.Errorf("%w: innodb_rollback_on_timeout is on, so the whole transaction is rolled back: %w",
			dialects.ErrLost, err)
	}
	if err = explainReadOnly(clean, at, request, err); !errors.Is(err, missing.ErrRows) {
		return got, err
	}
	if request.Try && (request.Slots > 0 || rollsBackOnTimeout(clean, at)) {
		return got, fmt.Errorf("%w: another session holds it or waits for it", dialects.ErrNotAcquired)
	}
	// Held or missing? A plain SELECT would tell, but at REPEATABLE READ it would take the
	// transaction's snapshot before its lock.
	query, err := lockSQL(request, nowait, 0, sqltext.Comment(labelOf(request), ""), "", false)
	if err != nil {
		return got, err
	}
	existing, err := server.Column(clean, at, query)
	if n := len(existing) - 1; err == nil && request.Fence != "" {
		got.Token, err = tokenOf(existing[n])
		existing = existing[:n]
	}
	if err != nil {
		return got, server.Classify(err, request)
	}
	if existing = valuesOf(request, existing); request.Try && len(existing) == len(request.Values) {
		return got, nil // released in the meantime, and ours now
	}
	return got, missing.Rows(request, existing)
}

// rollsBackOnTimeout reads the server's setting. An error is a yes.
func rollsBackOnTimeout(ctx context.Context, q server.Querier) bool {
	on, err := server.Column(ctx, q, "SELECT @@innodb_rollback_on_timeout")
	return err != nil || len(on) != 1 || on[0] != "0"
}

// valuesOf are the values of request that a result of lockSQL names, without repetition.
func valuesOf(request dialects.Request, result []string) []string {
	seen := make(map[string]bool, len(result))
	values := make([]string, 0, len(result))
	for _, text := range result {
		if request.Slots == 0 {
			position, err := strconv.Atoi(text)
			if err != nil || position >= len(request.Values) {
				continue
			}
			text = request.Values[position].Text
		}
		if !seen[text] {
			seen[text] = true
			values = append(values, text)
		}
	}
	return values
}

// onlyRow runs statements of which the last puts one row into a variable. It returns that row's
// value in request, if there was a row.
func onlyRow(to client.Link, request dialects.Request) sending {
	return func(ctx context.Context, script ...string) ([]string, error) {
		rows, err := to.Run(ctx, script...)
		if err != nil || rows == 0 {
			return nil, err
		}
		return []string{request.Values[0].Text}, nil
	}
}
