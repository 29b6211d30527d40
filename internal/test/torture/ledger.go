package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// ledger is the content of the database after an epoch, while nobody works.
type ledger struct {
	counters map[int]int64           // by key
	applied  map[application]int     // how often a Do took effect on a key
	seen     map[application]int64   // the value of the counter that the Do read
	works    map[int64][]operationID // what was to be done once, and who did it
	marked   map[int64]bool          // of what markers say that it was done
}

type application struct {
	operation operationID
	key       int
}

// read reads the ledger. It empties the sets, which would otherwise grow for hours.
func (d *database) read(ctx context.Context) (*ledger, error) {
	l := newLedger()
	err := d.each(ctx, "SELECT k, value FROM "+counters, func(rows *sql.Rows) error {
		var key int
		var value int64
		err := rows.Scan(&key, &value)
		l.counters[key] = value
		return err
	})
	if err != nil {
		return nil, err
	}
	err = d.each(ctx, "SELECT operation, k, seen FROM "+applied, func(rows *sql.Rows) error {
		var a application
		var seen int64
		err := rows.Scan(&a.operation, &a.key, &seen)
		l.applied[a]++
		l.seen[a] = seen
		return err
	})
	if err != nil {
		return nil, err
	}
	err = d.each(ctx, "SELECT work, operation FROM "+works, func(rows *sql.Rows) error {
		var work int64
		var by operationID
		err := rows.Scan(&work, &by)
		l.works[work] = append(l.works[work], by)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, table := range []string{applied, works} {
		if _, err := d.db.ExecContext(ctx, "DELETE FROM "+table); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func newLedger() *ledger {
	return &ledger{
		counters: map[int]int64{}, applied: map[application]int{}, seen: map[application]int64{},
		works: map[int64][]operationID{},
	}
}

// each reads the rows of a query.
func (d *database) each(ctx context.Context, query string, read func(rows *sql.Rows) error) error {
	rows, err := d.db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// sessions returns the numbers of the workers' sessions. Busy ones are in a transaction or run a
// statement.
func (d *database) sessions(ctx context.Context) (busy, idle []int64, err error) {
	query := `SELECT p.id, CASE WHEN x.trx_id IS NOT NULL OR p.command <> 'Sleep' THEN 1 ELSE 0 END
		FROM information_schema.processlist p LEFT JOIN information_schema.innodb_trx x ON x.trx_mysql_thread_id = p.id
		WHERE p.db = 'torture' ORDER BY p.id`
	if isPostgres(d.kind) {
		query = `SELECT pid, CASE WHEN xact_start IS NOT NULL OR state = 'active' THEN 1 ELSE 0 END
			FROM pg_stat_activity WHERE application_name LIKE 'torture-%' ORDER BY pid`
	}
	err = d.each(ctx, query, func(rows *sql.Rows) error {
		var number, working int64
		err := rows.Scan(&number, &working)
		if working == 1 {
			busy = append(busy, number)
		} else {
			idle = append(idle, number)
		}
		return err
	})
	return busy, idle, err
}

// terminate ends a session as an administrator does.
func (d *database) terminate(ctx context.Context, session int64) error {
	query := fmt.Sprintf("KILL %d", session)
	if isPostgres(d.kind) {
		query = fmt.Sprintf("SELECT pg_terminate_backend(%d)", session)
	}
	_, err := d.db.ExecContext(ctx, query)
	return err
}

// settle waits until count has been 0 for a while, because InnoDB's views may be 100 ms old.
func (d *database) settle(ctx context.Context, patience time.Duration, count func(busy, idle []int64) int) error {
	ticker := time.NewTicker(130 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.Now().Add(patience)
	for calm := 0; calm < 2; calm++ {
		busy, idle, err := d.sessions(ctx)
		if left := count(busy, idle); err != nil || left > 0 {
			calm = -1
			if time.Now().After(deadline) {
				return errors.Join(err, fmt.Errorf("%d sessions of the workers are left on the server after %v: in a "+
					"transaction or a statement %v, idle %v",
					left, patience, busy, idle))
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
