package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/servers"
)

// library is txlock. It must not show violations.
type library[Tx any] struct {
	plan  plan
	locks *txlock.Locker[Tx]
	exec  func(ctx context.Context, tx Tx, query string) error
	value func(ctx context.Context, tx Tx, query string) (int64, error)

	// begin begins a transaction that no lock has begun. Its pool is closed by closeOthers.
	begin       func(ctx context.Context, random *rand.Rand) (transaction[Tx], error)
	closeOthers func() error
}

// openSubject connects to what is tortured.
func openSubject(ctx context.Context, p plan) (subject, error) {
	if p.Handmade {
		db, err := sql.Open(driverName(p.Kind), p.DSN)
		if err != nil {
			return nil, err
		}
		db.SetMaxIdleConns(2 * goroutines)
		return &lookFirst{db}, nil
	}
	return openLibrary(ctx, p)
}

// openLibrary connects. The server may be down, so it tries again until that succeeds.
func openLibrary(ctx context.Context, p plan) (looker, error) {
	options := []txlock.Option{txlock.WithTable(lockTable), txlock.WithLease(p.Lease), txlock.WithFencing()}
	if isPostgres(p.Kind) {
		driver, err := persist(func() (*postgres.Driver, error) {
			return postgres.Open(ctx, servers.WithPool(p.DSN, 3*goroutines))
		})
		if err != nil {
			return nil, err
		}
		pool, err := pgxpool.New(ctx, p.DSN)
		if err != nil {
			return nil, err
		}
		return &library[pgx.Tx]{
			plan: p, locks: txlock.New(driver, options...), exec: execPgx, value: valuePgx, begin: beginsPgx(pool),
			closeOthers: func() error {
				pool.Close()
				return nil
			},
		}, nil
	}
	driver, err := persist(func() (*mysql.Driver, error) {
		return mysql.Open(ctx, servers.WithPool(p.DSN, 3*goroutines))
	})
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("mysql", p.DSN)
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(2 * goroutines)
	return &library[*sql.Tx]{
		plan: p, locks: txlock.New(driver, options...), exec: execSQL, value: valueSQL, begin: beginsSQL(db),
		closeOthers: db.Close,
	}, nil
}

// persist retries for a minute.
func persist[T any](try func() (T, error)) (T, error) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		value, err := try()
		if err == nil || time.Now().After(deadline) {
			return value, err
		}
	}
}

func execPgx(ctx context.Context, tx pgx.Tx, query string) error {
	_, err := tx.Exec(ctx, query)
	return err
}

func valuePgx(ctx context.Context, tx pgx.Tx, query string) (value int64, err error) {
	err = tx.QueryRow(ctx, query).Scan(&value)
	return value, err
}

func execSQL(ctx context.Context, tx *sql.Tx, query string) error {
	_, err := tx.ExecContext(ctx, query)
	return err
}

func valueSQL(ctx context.Context, tx *sql.Tx, query string) (value int64, err error) {
	err = tx.QueryRowContext(ctx, query).Scan(&value)
	return value, err
}

func (l *library[Tx]) verbs() []verb {
	if l.plan.Jobs {
		return []verb{verbJob}
	}
	all := []verb{
		verbDo, verbDo, verbDo, verbDo, verbDo, verbLock, verbLock, verbLock, verbTryDo, verbTryLock,
		verbExec, verbExec, verbExec, verbTryExec,
		verbLead, verbShare, verbShare, verbTryShare, verbRead, verbRead, verbPermit, verbPermit, verbPermit,
		verbPermit, verbPermit, verbTryPermit, verbOnce, verbOnce, verbTryOnce, verbOnceTx, verbClaim, verbClaim,
		verbClaim,
	}
	if l.plan.Galera { // which has neither readers nor semaphores
		return slices.DeleteFunc(all, func(v verb) bool { return v.shares() || v.permits() })
	}
	return all
}

func (l *library[Tx]) close() error { return errors.Join(l.locks.Close(), l.closeOthers()) }

func (l *library[Tx]) run(ctx context.Context, o *operation, random *rand.Rand, tell func()) {
	var err error
	switch {
	case o.Verb == verbLead:
		err = l.lead(ctx, o, random, tell)
	case o.Verb.once():
		err = l.once(ctx, o, random, tell)
	case o.Verb == verbClaim:
		err = l.claim(ctx, o, random, tell)
	case o.Verb == verbJob:
		err = l.job(ctx, o, random, tell)
	default:
		err = l.lock(ctx, o, random, tell)
	}
	if err != nil {
		o.Error = err.Error()
	}
}

// lock is an operation on a Mutex or a Semaphore.
func (l *library[Tx]) lock(ctx context.Context, o *operation, random *rand.Rand, tell func()) error {
	m := l.mutex(o)
	limited := false
	if !o.Verb.tries() && random.IntN(5) == 0 { // limits the wait in one of two ways
		limited = true
		limit := upTo(random, 30*time.Millisecond)
		if random.IntN(2) == 0 {
			m = m.Within(limit)
		} else {
			var cancel context.CancelFunc
			if !o.Verb.holds() {
				o.Deadline = o.Call + int64(limit)
			}
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
	}
	var err error
	switch {
	case o.Verb.holds():
		err = l.hold(ctx, m, o, random, tell)
	case o.Verb.flies():
		err = l.fly(ctx, m, o)
	case o.Verb == verbRead:
		err = l.read(ctx, m, o, random, tell)
	default:
		err = l.do(ctx, m, o, random, tell)
	}
	switch {
	case err == nil:
	case o.Granted == 0 && errors.Is(err, txlock.ErrNotAcquired):
		o.Outcome = missed
		o.Expected = limited || o.Verb.tries()
	case o.Granted != 0 || o.Verb.flies():
		// Of a connection that it has closed at the deadline, a client library may say only that it
		// is gone.
		closed := now() >= o.Deadline && errors.Is(err, driver.ErrBadConn)
		o.Expected = o.Deadline != 0 && (closed || errors.Is(err, context.DeadlineExceeded))
	}
	return err
}

func keyName(key int) string { return "torture:" + strconv.Itoa(key) }

// do adds 1 to the counter of each key. It reads and writes back, so only the lock protects the
// update. For a second key it uses a nested Do, whose savepoint belongs to the same transaction.
func (l *library[Tx]) do(ctx context.Context, m *txlock.Mutex[Tx], o *operation, random *rand.Rand, tell func()) error {
	call, worked := m.Do, false
	if o.Verb == verbTryDo {
		call = m.TryDo
	}
	err := call(ctx, func(ctx context.Context, tx Tx) (err error) {
		defer o.begins(tell)()
		if err := l.increment(ctx, tx, o, o.Keys[0], random); err != nil {
			return err
		}
		if len(o.Keys) == 2 {
			err = l.locks.Mutex(keyName(o.Keys[1])).Do(ctx, func(ctx context.Context, tx Tx) error {
				return l.increment(ctx, tx, o, o.Keys[1], random)
			})
		}
		worked = err == nil
		return err
	})
	o.Outcome = outcomeOf(err, worked)
	return err
}

// fly adds 1 to the counter of each key by statements that travel with the lock. What they have
// read stands in the books.
func (l *library[Tx]) fly(ctx context.Context, m *txlock.Mutex[Tx], o *operation) error {
	var statements []txlock.Statement
	for _, key := range o.Keys {
		statements = append(statements, txlock.Statement{
			SQL: fmt.Sprintf("INSERT INTO %s (operation, k, seen) SELECT %d, k, value FROM %s WHERE k = %d", applied,
				int64(o.ID), counters, key), Rows: 1,
		}, txlock.Statement{SQL: fmt.Sprintf("UPDATE %s SET value = value + 1 WHERE k = %d", counters, key), Rows: 1})
	}
	call := m.Exec
	if o.Verb.tries() {
		call = m.TryExec
	}
	_, err := call(ctx, statements...)
	o.Outcome = outcomeOf(err, true)
	return err
}

func (l *library[Tx]) increment(ctx context.Context, tx Tx, o *operation, key int, random *rand.Rand) error {
	value, err := l.value(ctx, tx, counterSQL(key))
	if err != nil {
		return err
	}
	o.Reads = append(o.Reads, value)
	if random.IntN(4) == 0 {
		time.Sleep(upTo(random, 5*time.Millisecond))
	}
	for _, query := range incrementSQL(o, key, value) {
		if err := l.exec(ctx, tx, query); err != nil {
			return err
		}
	}
	return nil
}

func counterSQL(key int) string {
	return fmt.Sprintf("SELECT value FROM %s WHERE k = %d", counters, key)
}

// incrementSQL writes what follows the value that an operation has read, and notes that it did.
func incrementSQL(o *operation, key int, value int64) []string {
	return []string{
		fmt.Sprintf("UPDATE %s SET value = %d WHERE k = %d", counters, value+1, key),
		fmt.Sprintf("INSERT INTO %s (operation, k, seen) VALUES (%d, %d, %d)", applied, int64(o.ID), key, value),
	}
}

// hold takes the lock for work outside its transaction. The work pauses, sometimes for longer than
// the lease.
func (l *library[Tx]) hold(ctx context.Context, m *txlock.Mutex[Tx], o *operation, random *rand.Rand,
	tell func(),
) error {
	call := m.Lock
	if o.Verb.tries() {
		call = m.TryLock
	}
	lock, err := call(ctx)
	if err != nil {
		o.Outcome = failed
		return err
	}
	o.Granted, o.Token, o.Permit = now(), lock.Token(), lock.Permit()
	if o.Verb.permits() {
		semaphore := o.Keys[0]
		o.Keys = []int{permitKey(semaphore-semaphoreKey(0), o.Permit), semaphore}
	}
	tell()
	noteLoss := o.watch(lock.Context())
	l.stay(lock.Context(), random, 400)
	o.Released = now()
	tell()
	err = lock.Unlock(context.Background())
	noteLoss()
	o.Outcome = done
	if err != nil {
		o.Outcome = failed
	}
	return err
}

// stay passes some time under a lock: once in so many times, more than the lease.
func (l *library[Tx]) stay(ctx context.Context, random *rand.Rand, times int) {
	length := upTo(random, 20*time.Millisecond)
	if random.IntN(times) == 0 {
		length = l.plan.Lease * 3 / 2
	}
	select {
	case <-time.After(length):
	case <-ctx.Done():
	}
}
