package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock"
)

// fillers are further keys of an operation on all keys, which then locks many rows.
const fillers = 100

// mutex is what an operation locks.
func (l *library[Tx]) mutex(o *operation) *txlock.Mutex[Tx] {
	if o.Verb.permits() {
		return l.locks.Semaphore(semaphoreName(o.Keys[0]-semaphoreKey(0)), permits)
	}
	names := make([]string, 0, len(o.Keys)+fillers)
	for _, key := range o.Keys {
		names = append(names, keyName(key))
	}
	if len(o.Keys) == mutexes {
		for filler := range fillers {
			names = append(names, "torture:filler:"+strconv.Itoa(filler))
		}
	}
	m := l.locks.Mutex(names...)
	if o.Verb.shares() {
		m = m.Shared()
	}
	return m
}

func semaphoreName(semaphore int) string { return "torture:" + strconv.Itoa(semaphore) }

// read reads the counters twice under a shared lock.
func (l *library[Tx]) read(ctx context.Context, m *txlock.Mutex[Tx], o *operation, random *rand.Rand,
	tell func(),
) error {
	err := m.Do(ctx, func(ctx context.Context, tx Tx) (err error) {
		defer o.begins(tell)()
		if o.Reads, err = l.counters(ctx, tx, o); err != nil {
			return err
		}
		time.Sleep(upTo(random, 8*time.Millisecond))
		o.Again, err = l.counters(ctx, tx, o)
		return err
	})
	o.Outcome = done
	if err != nil {
		o.Outcome = failed
	}
	return err
}

func (l *library[Tx]) counters(ctx context.Context, tx Tx, o *operation) (values []int64, err error) {
	for _, key := range o.Keys {
		value, err := l.value(ctx, tx, counterSQL(key))
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

func workName(work int64) string { return "torture:" + strconv.FormatInt(work, 10) }

// errUnwilling is what some work fails with.
var errUnwilling = errors.New("the work fails this time")

// once asks for work that is to be done once.
func (l *library[Tx]) once(ctx context.Context, o *operation, random *rand.Rand, tell func()) error {
	once := l.locks.Once(workName(o.Work))
	limited := !o.Verb.tries() && random.IntN(5) == 0
	if limited {
		once = once.Within(upTo(random, 30*time.Millisecond))
	}
	if o.Verb == verbOnceTx {
		err := l.onceTx(ctx, once, o, random, tell)
		o.Expected = errors.Is(err, errUnwilling) || limited && errors.Is(err, txlock.ErrNotAcquired) ||
			l.plan.Galera && errors.Is(err, txlock.ErrDeadlock) // another node was first
		return err
	}
	call, worked := once.Do, false
	if o.Verb == verbTryOnce {
		call = once.TryDo
	}
	ran, err := call(ctx, func(ctx context.Context, tx Tx) error {
		err := l.work(ctx, tx, o, random, tell)
		worked = err == nil
		return err
	})
	o.Ran = ran
	o.Outcome = outcomeOf(err, worked)
	o.Expected = errors.Is(err, errUnwilling) || o.Granted == 0 && (limited || o.Verb.tries()) &&
		errors.Is(err, txlock.ErrNotAcquired)
	return err
}

func (l *library[Tx]) work(ctx context.Context, tx Tx, o *operation, random *rand.Rand, tell func()) error {
	defer o.begins(tell)()
	if err := l.exec(ctx, tx, doneSQL(o)); err != nil {
		return err
	}
	time.Sleep(upTo(random, 5*time.Millisecond))
	if random.IntN(10) == 0 {
		return errUnwilling
	}
	return nil
}

// onceTx marks the work in a transaction of its own. A second call in it is told that it was done.
func (l *library[Tx]) onceTx(ctx context.Context, once *txlock.Once[Tx], o *operation, random *rand.Rand,
	tell func(),
) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	o.Outcome = failed
	tx, err := l.begin(ctx, random)
	if err != nil {
		return err
	}
	defer tx.rollback()
	first, err := once.DoTx(ctx, tx.Tx)
	if err != nil {
		return err
	}
	if !first {
		o.Outcome = done
		return nil
	}
	if err := l.work(ctx, tx.Tx, o, random, tell); err != nil {
		return err
	}
	if random.IntN(4) == 0 {
		if second, err := once.DoTx(ctx, tx.Tx); err != nil || second {
			return errors.Join(fmt.Errorf("the second DoTx in a transaction said %t", second), err)
		}
	}
	if err = tx.commit(); err != nil {
		o.Outcome = unknown
		return err
	}
	o.Outcome, o.Ran = done, true
	return nil
}

// transaction is one that no lock has begun.
type transaction[Tx any] struct {
	Tx               Tx
	commit, rollback func() error
}

func beginsPgx(pool *pgxpool.Pool) func(context.Context, *rand.Rand) (transaction[pgx.Tx], error) {
	return func(ctx context.Context, _ *rand.Rand) (t transaction[pgx.Tx], err error) {
		t.Tx, err = pool.Begin(ctx)
		t.commit = func() error { return t.Tx.Commit(ctx) }
		t.rollback = func() error { return t.Tx.Rollback(ctx) }
		return t, err
	}
}

// beginsSQL begins at one of the isolation levels that DoTx takes.
func beginsSQL(db *sql.DB) func(context.Context, *rand.Rand) (transaction[*sql.Tx], error) {
	return func(ctx context.Context, random *rand.Rand) (t transaction[*sql.Tx], err error) {
		levels := []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead}
		t.Tx, err = db.BeginTx(ctx, &sql.TxOptions{Isolation: levels[random.IntN(len(levels))]})
		t.commit = func() error { return t.Tx.Commit() }
		t.rollback = func() error { return t.Tx.Rollback() }
		return t, err
	}
}
