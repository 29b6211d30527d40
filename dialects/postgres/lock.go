package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/missing"
	"github.com/txlock/txlock/internal/locktable"
)

// await sends the script that locks the rows of request, and waits for them. The server knows ctx's
// deadline. It returns the token, if one is asked for.
func (q querier) await(ctx context.Context, request dialects.Request, on terms,
	sendLock func(context.Context, plan) ([][]string, error),
) (token int64, err error) {
	on.limit = interrupt.Limit(ctx, request)
	told := on.limit > 0
	patience := patienceOf(request, on.as)
	if patience > 0 && (!told || patience < on.limit) {
		on.limit, told = patience, false
	} else {
		patience = 0
	}
	p, err := lockScript(request, on)
	if err != nil {
		return 0, err
	}
	var columns [][]string
	var asked bool // to give way
	func() {
		w := q.waits.enter(request, q)
		defer func() { asked = q.waits.leave(w) }() // also when the client library panics
		err = q.interrupted(ctx, told, on.as, func(ctx context.Context) (err error) {
			columns, err = sendLock(ctx, p)
			return err
		})
	}()
	state := sqlState(err)
	if (asked && state == queryCanceled || patience > 0 && state == lockNotAvailable) && ctx.Err() == nil {
		return 0, errGaveWay
	}
	if err != nil {
		return 0, classify(err, request)
	}
	if p.done >= 0 && isTrue(columns[p.done][0]) {
		return 0, errFound
	}
	if p.turnstiles >= 0 {
		err = passed(request, on.as, columns[p.turnstiles])
	}
	if err == nil {
		err = complete(request, columns[p.rows])
	}
	if err == nil && p.marker >= 0 && len(columns[p.marker]) == 0 {
		err = dialects.ErrDone
	}
	if err != nil || request.Fence == "" {
		return 0, err
	}
	return tokenOf(columns[p.token])
}

// interrupted runs a statement, and ends it on the server when ctx ends first.
func (q querier) interrupted(ctx context.Context, told bool, as role, statement func(context.Context) error) error {
	patience := interrupt.Patience
	if as != owner {
		patience = interrupt.GuestPatience
	}
	return interrupt.Await(ctx, told, patience, q.interrupt, q.cut, statement)
}

var errSnapshot = fmt.Errorf("%w: the transaction's snapshot is older than the lock, so it would read stale data "+
	"under it; begin it at READ COMMITTED", dialects.ErrIsolation)

// passed judges what the turnstiles answered.
func passed(request dialects.Request, as role, turnstiles []string) error {
	if as == foreign && len(turnstiles) == 0 {
		return errSnapshot
	}
	for _, granted := range turnstiles {
		if request.Try && !isTrue(granted) {
			return fmt.Errorf("%w: another session holds it or waits for it", dialects.ErrNotAcquired)
		}
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

// isTrue reads a boolean in text, in binary, or as database/sql prints it.
func isTrue(value string) bool { return value == "t" || value == "\x01" || value == "true" }

// explain turns missing.ErrRows into what it means: rows that do not exist, or that others hold.
func (q querier) explain(ctx context.Context, request dialects.Request, err error) error {
	if state := sqlState(err); (state == undefinedTable || state == undefinedColumn) && request.Fence != "" {
		return q.explainFence(ctx, request, err)
	}
	if sqlState(err) == divisionByZero && request.TableID != "" {
		return q.explainTable(ctx, request, err)
	}
	if !errors.Is(err, missing.ErrRows) {
		return q.explainStandby(ctx, request, err)
	}
	s, err := existScript(request)
	if err != nil {
		return err
	}
	columns, err := q.run(ctx, s)
	if err != nil {
		return classify(err, request)
	}
	return missing.Rows(request, columns[0])
}

// errElsewhere says that the name of the lock table means another one on this connection.
var errElsewhere = errors.New("the name of the lock table means another table on this connection")

// explainTable says which tables there are, where numberSQL has failed. One that is not there any
// more was made anew.
func (q querier) explainTable(ctx context.Context, request dialects.Request, failed error) error {
	quoted, err := quoteTable(request.Table)
	if err != nil {
		return err
	}
	columns, err := q.run(ctx, script{{
		"select format('%I.%I', nspname, relname) from pg_class c " +
			"join pg_namespace n on n.oid = relnamespace where c.oid in ($1::oid, $2::regclass) " +
			"order by c.oid = $1::oid desc",
		[]string{request.TableID, quoted},
	}})
	switch {
	case err != nil:
		return errors.Join(failed, err)
	case len(columns[0]) == 2:
		return fmt.Errorf("%w: %s, and not %s, which it meant when it was looked up: name the table with its schema, "+
			"or leave search_path as it is", errElsewhere, columns[0][1], columns[0][0])
	case request.Slots == 0:
		return fmt.Errorf("%w: table %s was made anew", dialects.ErrNoRow, quoted)
	}
	return locktable.NotInstalled(request.Table, errors.New("it was made anew, or dropped"))
}

// tryGuestLock locks rows in a transaction that has more to lose than this lock. A savepoint keeps
// the transaction safe from every error. The wait may give way: then it is to be tried again.
func (q querier) tryGuestLock(ctx context.Context, request dialects.Request, as role) (token int64, err error) {
	set, cancel := interrupt.Detached(ctx) // pgx closes the connection when ctx ends
	_, err = q.run(set, script{{sql: waitSavepoint}})
	cancel()
	if sqlState(err) == noTransaction || broken(err) {
		return 0, lost(err)
	}
	if err != nil {
		return 0, err
	}
	unsure := false
	if request.Permit != nil {
		token, unsure, err = q.guestPermit(ctx, request, as)
	} else {
		token, err = q.await(ctx, request, terms{as: as}, func(ctx context.Context, lock plan) ([][]string, error) {
			return q.run(ctx, lock.script)
		})
	}

	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	if err == nil {
		_, err = q.run(clean, script{{sql: "release savepoint txlock_wait"}})
		return token, lost(err)
	}
	// This gives back also what was locked, and every setting its value. It takes two trips: before
	// the rollback, nothing else can be prepared. The last statement has no snapshot; see
	// dropSnapshotSQL.
	_, undone := q.run(clean, script{{sql: "rollback to savepoint txlock_wait"}})
	if undone == nil && unsure {
		undone = q.unqueue(clean, request)
	}
	if undone == nil {
		err = q.explain(clean, request, err)
		_, undone = q.run(clean, script{{sql: "release savepoint txlock_wait"}})
	}
	if undone != nil {
		return 0, lost(errors.Join(err, undone))
	}
	return 0, err
}

// abandon rolls back what a script has left open. Where that fails, the connection is closed when
// it goes back.
func (q querier) abandon(ctx context.Context) {
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	_, _ = q.run(clean, script{{sql: "rollback"}})
}
