package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
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
	store *sql.DB // the fenced store: a system outside the lock's transaction
	exec  func(ctx context.Context, tx Tx, query string) error
	value func(ctx context.Context, tx Tx, query string) (int64, error)
	begin func(ctx context.Context, random *rand.Rand) (transaction[Tx], error)
	pool  *pgxpool.Pool // of transactions that no lock has begun; nil: store has them
}

// openSubject connects. The server may be down, so it tries again until that succeeds.
func openSubject(ctx context.Context, p plan) (subject, error) {
	store, err := sql.Open(driverName(p.Kind), p.DSN)
	if err != nil {
		return nil, err
	}
	store.SetMaxIdleConns(2 * p.Goroutines)
	switch {
	case p.Lock != lockTxlock:
		return openHandmade(p, store)
	case isPostgres(p.Kind):
		driver, err := persist(func() (*postgres.Driver, error) {
			return postgres.Open(ctx, servers.WithPool(p.DSN, 3*p.Goroutines))
		})
		if err != nil {
			return nil, err
		}
		pool, err := pgxpool.New(ctx, p.DSN)
		if err != nil {
			return nil, err
		}
		return &library[pgx.Tx]{
			plan: p, locks: txlock.New(driver, options(p.Lease)...), store: store,
			exec: execPgx, value: valuePgx, begin: beginsPgx(pool), pool: pool,
		}, nil
	}
	driver, err := persist(func() (*mysql.Driver, error) {
		return mysql.Open(ctx, servers.WithPool(p.DSN, 3*p.Goroutines))
	})
	if err != nil {
		return nil, err
	}
	return &library[*sql.Tx]{
		plan: p, locks: txlock.New(driver, options(p.Lease)...), store: store, exec: execSQL,
		value: valueSQL, begin: beginsSQL(store),
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
	if l.plan.Galera {
		return []verb{
			verbDo, verbDo, verbDo, verbDo, verbDo, verbLock, verbLock, verbLock, verbTryDo, verbTryLock, verbExec,
			verbExec, verbTryExec, verbOnce, verbOnce, verbTryOnce, verbOnceTx, verbLead, verbClaim, verbClaim,
		}
	}
	return []verb{
		verbDo, verbDo, verbDo, verbDo, verbDo, verbLock, verbLock, verbLock, verbTryDo, verbTryLock,
		verbExec, verbExec, verbExec, verbTryExec,
		verbLead, verbShare, verbShare, verbTryShare, verbRead, verbRead, verbPermit, verbPermit, verbPermit,
		verbPermit, verbPermit, verbTryPermit, verbOnce, verbOnce, verbTryOnce, verbOnceTx, verbClaim, verbClaim,
		verbClaim,
	}
}

func (l *library[Tx]) close() error {
	if l.pool != nil {
		l.pool.Close()
	}
	return errors.Join(l.locks.Close(), l.store.Close())
}

func (l *library[Tx]) run(ctx context.Context, o *operation, random *rand.Rand, tell func()) {
	var err error
	switch {
	case o.Verb == verbLead:
		err = l.lead(ctx, o, random, tell)
	case o.Verb.once():
		err = l.once(ctx, o, random, tell)
	case o.Verb == verbClaim:
		err = l.claim(ctx, o, random, tell)
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
		o.Expected = o.Deadline != 0 && (closed || errors.Is(err, context.DeadlineExceeded)) ||
			o.Silent && errors.Is(err, txlock.ErrLost)
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
		if random.IntN(500) == 0 && o.Deadline == 0 && err == nil {
			err = l.idle(ctx, tx, o, tell)
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

// idle lets the work send nothing for longer than WithLease permits, so that it loses the lock. Its
// changes must not be committed. The server counts the lease from its last answer, even if the work
// receives that late.
func (l *library[Tx]) idle(ctx context.Context, tx Tx, o *operation, tell func()) error {
	sent := now()
	if err := l.exec(ctx, tx, "SELECT 1"); err != nil {
		return err
	}
	o.Silent, o.Deadline = true, sent+int64(l.plan.Lease*9/10)
	tell() // a kill may come during the pause
	time.Sleep(l.plan.Lease * 3 / 2)
	return nil
}

func (l *library[Tx]) increment(ctx context.Context, tx Tx, o *operation, key int, random *rand.Rand) error {
	value, err := l.value(ctx, tx, fmt.Sprintf("SELECT value FROM %s WHERE k = %d", counters, key))
	if err != nil {
		return err
	}
	o.Reads = append(o.Reads, value)
	if random.IntN(4) == 0 {
		time.Sleep(upTo(random, 5*time.Millisecond))
	}
	if err := l.exec(ctx, tx, fmt.Sprintf("UPDATE %s SET value = %d WHERE k = %d", counters, value+1,
		key)); err != nil {
		return err
	}
	return l.exec(ctx, tx, fmt.Sprintf("INSERT INTO %s (operation, k, seen) VALUES (%d, %d, %d)", applied, int64(o.ID),
		key, value))
}

// hold takes the lock for work outside its transaction. The work writes to the fenced store and
// pauses, sometimes for longer than the lease.
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
		o.Keys = []int{permitKey(l.plan.Keys, semaphore-semaphoreKey(l.plan.Keys, 0), o.Permit), semaphore}
	}
	tell()
	noteLoss := o.watch(lock.Context())
	if o.Verb.fences() {
		l.writeFenced(lock.Context(), o)
	}
	var nested error
	if len(o.Keys) == 2 && !o.Verb.permits() {
		nested = l.again(m, lock, o)
	}
	l.stay(lock.Context(), random, 400)
	o.Released = now()
	tell()
	err = lock.Unlock(context.Background())
	noteLoss()
	o.Outcome = done
	if err = errors.Join(nested, err); err != nil {
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
