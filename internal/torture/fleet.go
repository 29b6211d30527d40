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

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
)

// A fleet that changes from a lock of the server's own, pg_advisory_lock or GET_LOCK, to txlock.
// Some of its processes hold the old lock, some the new one, and some both.
const (
	lockOldDual = "old+dual"
	lockDual    = "dual"
	lockDualNew = "dual+new"
	lockOldNew  = "old+new" // who holds the one does not exclude who holds the other
)

// part is what a process of a fleet holds.
type part byte

const (
	holdsNew part = iota
	holdsOld
	holdsBoth
)

// fleets are the parts of the processes, one after the other.
var fleets = map[string][]part{
	lockOldDual: {holdsOld, holdsBoth},
	lockDual:    {holdsBoth},
	lockDualNew: {holdsBoth, holdsNew},
	lockOldNew:  {holdsOld, holdsNew},
}

// isTxlock tells whether no process may show a violation by a flaw of its lock.
func isTxlock(lock string) bool { return lock == lockTxlock || fleets[lock] != nil }

func (p plan) part() part {
	if parts := fleets[p.Lock]; parts != nil {
		return parts[p.Process%len(parts)]
	}
	return holdsNew
}

// fleetKinds are the faults of a fleet: sessions end in all ways. A process with the old lock keeps
// it as long as its connection is there.
var fleetKinds = []faultKind{killWorker, stopWorker, killServer, endSession, networkReset}

// fleetVerbs are those that have something to do with the keys of old locks.
var fleetVerbs = []verb{verbDo, verbDo, verbDo, verbTryDo, verbLock, verbLock, verbTryLock, verbExec, verbTryExec}

// beside is m with the old locks of the keys, in a process that holds both.
func beside[Tx any](p plan, m *txlock.Mutex[Tx], keys ...int) *txlock.Mutex[Tx] {
	if p.part() != holdsBoth {
		return m
	}
	var old []dialects.Legacy
	for _, key := range keys {
		switch {
		case !isPostgres(p.Kind):
			old = append(old, mysql.Named(keyName(key)))
		case key%2 == 0:
			old = append(old, postgres.Advisory(int64(key)))
		default:
			old = append(old, postgres.AdvisoryPair(-1, int32(key)))
		}
	}
	return m.Beside(old...)
}

// oldArguments are those of the server's functions for the old lock of a key.
func oldArguments(p plan, key int) string {
	switch {
	case !isPostgres(p.Kind):
		return "'" + keyName(key) + "'"
	case key%2 == 0:
		return strconv.Itoa(key)
	}
	return "-1, " + strconv.Itoa(key)
}

// oldLock is a program as it was before: it takes the server's lock for its session, works in a
// transaction of the same session, and gives it back.
type oldLock struct {
	plan plan
	db   *sql.DB
}

func (l *oldLock) verbs() []verb { return []verb{verbDo} }
func (l *oldLock) close() error  { return l.db.Close() }

func (l *oldLock) run(ctx context.Context, o *operation, random *rand.Rand, tell func()) {
	o.Keys = o.Keys[:1]
	end := failed // said when it has ended: until then nobody knows
	conn, err := l.db.Conn(ctx)
	if err == nil {
		end, err = l.work(ctx, conn, o, random, tell)
		if err != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the session ends, and the lock with it
		}
		_ = conn.Close()
	}
	o.Outcome = end
	if err != nil {
		o.Error = err.Error()
	}
}

func (l *oldLock) work(ctx context.Context, conn *sql.Conn, o *operation, random *rand.Rand, tell func()) (
	end outcome, err error,
) {
	take, give := "SELECT GET_LOCK(%s, 1000000)", "SELECT RELEASE_LOCK(%s)"
	if isPostgres(l.plan.Kind) {
		take, give = "SELECT pg_advisory_lock(%s)", "SELECT pg_advisory_unlock(%s)"
	}
	var answer sql.NullString
	if err := conn.QueryRowContext(ctx, fmt.Sprintf(take, oldArguments(l.plan, o.Keys[0]))).Scan(&answer); err != nil {
		return failed, err
	}
	if answer.String == "0" || !answer.Valid {
		return failed, fmt.Errorf("the old lock was not granted: %q", answer.String)
	}
	o.Granted = now()
	tell()
	end, err = l.commit(ctx, conn, o, random)
	o.Released = now()
	tell()
	if err != nil {
		return end, err
	}
	return end, conn.QueryRowContext(ctx, fmt.Sprintf(give, oldArguments(l.plan, o.Keys[0]))).Scan(&answer)
}

func (l *oldLock) commit(ctx context.Context, conn *sql.Conn, o *operation, random *rand.Rand) (outcome, error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return failed, err
	}
	defer tx.Rollback()
	value, err := readCounter(ctx, tx, o.Keys[0])
	if err != nil {
		return failed, err
	}
	o.Reads = []int64{value}
	time.Sleep(time.Duration(random.Int64N(int64(5 * time.Millisecond)))) // the work
	if err = writeCounter(ctx, tx, o, o.Keys[0], value+1); err != nil {
		return failed, err
	}
	if err = tx.Commit(); err != nil {
		return unknown, err
	}
	return done, nil
}

// oldFree checks that nobody has kept an old lock, while all rest.
func (t *trial) oldFree(ctx context.Context) error {
	if fleets[t.Lock] == nil {
		return nil
	}
	conn, err := t.data.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	try, give := "SELECT GET_LOCK(%s, 0)", "SELECT RELEASE_LOCK(%s)"
	if isPostgres(t.Kind) {
		try, give = "SELECT pg_try_advisory_lock(%s)::int", "SELECT pg_advisory_unlock(%s)::int"
	}
	for key := range t.Keys {
		for _, query := range []string{try, give} {
			var granted bool
			err := conn.QueryRowContext(ctx, fmt.Sprintf(query, oldArguments(plan{Kind: t.Kind}, key))).Scan(&granted)
			if err == nil && !granted {
				err = errors.New("nobody works, and yet it is held")
			}
			if err != nil {
				return fmt.Errorf("the old lock of key %d: %w", key, err)
			}
		}
	}
	return nil
}
