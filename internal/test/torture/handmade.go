package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// The locks that can be tortured.
const (
	lockTxlock    = "txlock"
	lockLeaseRow  = "lease-row"
	lockLookFirst = "look-first"
)

// openHandmade opens one of the locks that people write by hand. It must show violations.
func openHandmade(p plan, db *sql.DB) (subject, error) {
	switch p.Lock {
	case lockLeaseRow:
		return &leaseRow{db: db, now: clockOf(p)}, nil
	case lockLookFirst:
		return &lookFirst{db: db, keys: p.Keys}, nil
	}
	return nil, fmt.Errorf("no lock %q: there are %s, %s and %s", p.Lock, lockTxlock, lockLeaseRow, lockLookFirst)
}

// clockOf is an SQL expression for the server's clock in milliseconds.
func clockOf(p plan) string {
	if isPostgres(p.Kind) {
		return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
	}
	return "CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)"
}

// leaseRow is a row with a holder, and an expiry time by the server's clock. A holder that is
// paused for longer than the lease continues to write when it wakes up.
type leaseRow struct {
	db  *sql.DB
	now string
}

func (l *leaseRow) verbs() []verb { return []verb{verbDo} }
func (l *leaseRow) close() error  { return l.db.Close() }

func (l *leaseRow) run(ctx context.Context, o *operation, random *rand.Rand, tell func()) {
	o.Keys = o.Keys[:1]
	key, me := o.Keys[0], int64(o.ID)
	take := fmt.Sprintf("UPDATE %s SET holder = %d, expires_at = %s + %d WHERE k = %d AND (holder = 0 OR expires_at "+
		"< %s)",
		handmade, me, l.now, expiryPeriod.Milliseconds(), key, l.now)
	err := l.poll(ctx, take, time.Now().Add(2*time.Second))
	if err != nil {
		o.Outcome, o.Error, o.Expected = missed, err.Error(), errors.Is(err, errHeld)
		return
	}
	o.Granted = now()
	tell()
	value, err := readCounter(ctx, l.db, key)
	if err == nil {
		o.Reads = []int64{value}
		time.Sleep(5*time.Millisecond + time.Duration(random.Int64N(int64(15*time.Millisecond)))) // the work
		err = l.write(ctx, o, key, value+1)
	}
	o.Outcome = done
	if err != nil {
		o.Outcome, o.Error = unknown, err.Error()
	}
	o.Released = now()
	tell()
	_, _ = l.db.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET holder = 0 WHERE k = %d AND holder = %d", handmade, key,
		me))
}

var errHeld = errors.New("held by another")

func (l *leaseRow) poll(ctx context.Context, take string, deadline time.Time) error {
	for time.Now().Before(deadline) {
		result, err := l.db.ExecContext(ctx, take)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 1 {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
	return errHeld
}

func (l *leaseRow) write(ctx context.Context, o *operation, key int, value int64) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := writeCounter(ctx, tx, o, key, value); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// statements is a sql.DB or a sql.Tx.
type statements interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func readCounter(ctx context.Context, db statements, key int) (value int64, err error) {
	err = db.QueryRowContext(ctx, fmt.Sprintf("SELECT value FROM %s WHERE k = %d", counters, key)).Scan(&value)
	return value, err
}

func writeCounter(ctx context.Context, db statements, o *operation, key int, value int64) error {
	if _, err := db.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET value = %d WHERE k = %d", counters, value,
		key)); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (operation, k, seen) VALUES (%d, %d, %d)", applied,
		int64(o.ID), key, value-1))
	return err
}
