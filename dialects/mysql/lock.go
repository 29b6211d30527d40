package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects"
)

// errRowsMissing says that fewer rows were locked than asked for.
var errRowsMissing = errors.New("rows missing")

// errUnreached says that the wait could be ended only with its connection.
var errUnreached = errors.New("the connection was closed, for the pool had none to interrupt the wait from")

// querier is a transaction, or the connection that it runs on.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// lock locks the rows of request in one round trip. behind is SQL for the same trip.
func (d *Driver) lock(ctx context.Context, q querier, request dialects.Request, behind string) (token int64, err error) {
	clause := wait
	if request.Try {
		clause = skipLocked
	}
	limit, told := dialects.ServerTimeout(ctx)
	told = told && !request.Try
	if !told {
		limit = 0
	}
	tag := ""
	if ctx.Done() != nil && !request.Try {
		tag = "txlock " + rand.Text()
	}
	query, err := lockSQL(request, clause, limit, tag)
	if err != nil {
		return 0, err
	}
	var locked []string
	unreached := false
	err = dialects.Await(ctx, told, func(ctx context.Context) error {
		err := d.kill(ctx, tag, 50*time.Millisecond)
		unreached = errors.Is(err, dialects.ErrNoInterrupt)
		return err
	}, func(ctx context.Context) (err error) {
		locked, err = firstColumn(ctx, q, query+behind)
		return err
	})
	if unreached && err != nil && number(err) == 0 { // else the server has answered just then
		err = fmt.Errorf("%w (%w)", err, errUnreached)
	}
	if unreached { // closing the waiter's connection has made room in the pool
		go func() { _ = d.kill(context.WithoutCancel(ctx), tag, cleanUpTimeout) }()
	}
	if err != nil {
		return 0, classify(err, request)
	}
	if request.Fence != "" {
		if locked, token, err = tokenOf(locked); err != nil {
			return 0, err
		}
	}
	if len(valuesOf(request, locked)) < len(request.Values) {
		return 0, errRowsMissing
	}
	return token, nil
}

// guestLock locks rows in a transaction that has more to lose than this lock. Errors of single statements leave an
// InnoDB transaction and its locks alone, a deadlock's apart.
func (d *Driver) guestLock(ctx context.Context, q querier, request dialects.Request) (token int64, err error) {
	token, err = d.lock(ctx, q, request, "")
	if number(err) == 0 && errors.Is(err, context.Canceled) || // the interrupt had no effect
		errors.Is(err, errUnreached) || broken(err) {
		return 0, lost(err)
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	if number(err) == lockWaitTimeout && rollsBackOnTimeout(clean, q) {
		return 0, fmt.Errorf("%w: innodb_rollback_on_timeout is on, so the whole transaction is rolled back: %w", dialects.ErrLost, err)
	}
	if !errors.Is(err, errRowsMissing) {
		return token, err
	}
	if request.Try && (request.Slots > 0 || rollsBackOnTimeout(clean, q)) {
		return 0, fmt.Errorf("%w: another session holds it or waits for it", dialects.ErrNotAcquired)
	}
	// Busy or missing? A plain SELECT would tell, but at REPEATABLE READ take the transaction's snapshot before its lock.
	query, err := lockSQL(request, nowait, 0, "")
	if err != nil {
		return 0, err
	}
	existing, err := firstColumn(clean, q, query)
	if err == nil && request.Fence != "" {
		existing, token, err = tokenOf(existing)
	}
	if err != nil {
		return 0, classify(err, request)
	}
	if existing = valuesOf(request, existing); request.Try && len(existing) == len(request.Values) {
		return token, nil // released in the meantime, and ours now
	}
	return 0, request.Missed(existing)
}

// rollsBackOnTimeout reads the server's setting. An error is a yes.
func rollsBackOnTimeout(ctx context.Context, q querier) bool {
	on, err := firstColumn(ctx, q, "SELECT @@innodb_rollback_on_timeout")
	return err != nil || len(on) != 1 || on[0] != "0"
}

// valuesOf are the values of request that a result of lockSQL names, each once.
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

// firstColumn runs one or more statements and returns the first column of the first's rows.
func firstColumn(ctx context.Context, q querier, query string) ([]string, error) {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var column []string
	for rows.Next() {
		var value sql.RawBytes
		if err := rows.Scan(&value); err != nil {
			return nil, err
		}
		column = append(column, string(value))
	}
	for rows.NextResultSet() { // an error of a later statement shows when its result is read
	}
	return column, rows.Err()
}
