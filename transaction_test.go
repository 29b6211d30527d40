package txlock_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
)

// guest begins a caller's own transaction in the fixture's name.
func (f *fixture[Tx]) guest(t *testing.T) Tx { return f.begin(t, f.dsn(f.label, "", nil), 0) }

func lockTxHolds[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	table := f.makeTable(t, "id int primary key")
	a, b := f.key("a"), f.key("b")
	f.free(t, a, b) // reads the number of slots, for which LockTx would wait no longer than a second
	for _, commit := range []bool{true, false} {
		tx := f.guest(t)
		require.NoError(t, f.locks.Mutex(a).LockTx(background, tx))
		require.NoError(t, f.locks.Mutex(b).TryLockTx(background, tx))
		require.NoError(t, f.locks.Mutex(a, b).LockTx(background, tx), "the same session locks again")
		require.NoError(t, f.exec(background, tx, "INSERT INTO "+table+" VALUES (1)"))
		f.taken(t, a)
		f.taken(t, b)
		require.NoError(t, f.end(background, tx, commit))
		f.free(t, a, b)
		require.Equal(t, map[bool]int{true: 1, false: 1}[commit], f.total(t, "SELECT COUNT(*) FROM "+table))
		if commit {
			f.admitted(t, "DELETE FROM "+table)
			f.admitted(t, "INSERT INTO "+table+" VALUES (2)")
		}
	}
}

func callersTransaction[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	table := f.makeTable(t, "id int primary key")
	held, own := f.key("held"), f.key("own")
	holder, err := f.locks.Mutex(held).Lock(background)
	require.NoError(t, err)

	tx := f.guest(t)
	require.NoError(t, f.locks.Mutex(own).LockTx(background, tx))
	require.NoError(t, f.exec(background, tx, "INSERT INTO "+table+" VALUES (1)"))
	usable := func() {
		t.Helper()
		f.taken(t, own)
		require.NoError(t, f.exec(background, tx, "UPDATE "+table+" SET id = id + 1"))
	}
	require.ErrorIs(t, f.locks.Mutex(held).TryLockTx(background, tx), txlock.ErrNotAcquired)
	usable()
	require.ErrorIs(t, f.locks.Mutex(held, f.key("free")).TryLockTx(background, tx), txlock.ErrNotAcquired)
	usable()
	err = f.locks.Mutex(held).Within(50*time.Millisecond).LockTx(background, tx)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	usable()
	ctx, cancel := context.WithCancel(background)
	failed := make(chan error, 1)
	go func() { failed <- f.locks.Mutex(held).LockTx(ctx, tx) }()
	f.waiters(t, 1)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	usable()
	require.Error(t, f.locks.Rows(table+"_missing", "id", 1).LockTx(background, tx))
	usable()
	require.NoError(t, holder.Unlock(background))
	require.NoError(t, f.locks.Mutex(held).LockTx(background, tx))
	f.taken(t, held)
	require.NoError(t, f.end(background, tx, true))
	require.Equal(t, 6, f.total(t, "SELECT id FROM "+table))
	f.free(t, held, own)
}

func callersSettings[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	holder, err := f.locks.Mutex(f.key("held")).Lock(background)
	require.NoError(t, err)
	defer func() { require.NoError(t, holder.Unlock(background)) }()

	read, change := "SELECT CONCAT(@@innodb_lock_wait_timeout, ' ', @@autocommit)", "SET innodb_lock_wait_timeout = 7"
	if f.postgres {
		read = "SELECT current_setting('lock_timeout') || current_setting('transaction_isolation') || " +
			"current_setting('default_transaction_read_only') || " +
			"current_setting('application_name') || current_setting('client_connection_check_interval')"
		change = "SET LOCAL lock_timeout = '7s'"
	}
	for _, changed := range []bool{false, true} {
		tx := f.guest(t)
		if changed {
			require.NoError(t, f.exec(background, tx, change))
		}
		before, err := f.query(background, tx, read)
		require.NoError(t, err)
		require.ErrorIs(t, f.locks.Mutex(f.key("held")).TryLockTx(background, tx), txlock.ErrNotAcquired)
		require.ErrorIs(t, f.locks.Mutex(f.key("held")).Within(30*time.Millisecond).LockTx(background, tx),
			txlock.ErrNotAcquired)
		require.NoError(t, f.locks.Mutex(f.key("a")).Within(time.Minute).LockTx(background, tx))
		require.NoError(t, f.locks.Mutex(f.key("b")).LockTx(background, tx))
		after, err := f.query(background, tx, read)
		require.NoError(t, err)
		require.Equal(t, before, after)
		require.NoError(t, f.end(background, tx, true))
	}
	if f.postgres { // a limit of the caller's own is kept as well
		tx := f.guest(t)
		require.NoError(t, f.exec(background, tx, "SET LOCAL lock_timeout = '30ms'"))
		err := f.locks.Mutex(f.key("held")).LockTx(background, tx)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, f.end(background, tx, true))
	}
}

func staleSnapshot[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	m := f.locks.Mutex(f.key("stale"))
	dsn := f.dsn(f.label, "", nil)
	f.free(t, f.key("stale")) // as in lockTxHolds
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		tx := f.begin(t, dsn, level)
		if f.postgres {
			start := time.Now()
			holder, err := m.Lock(background)
			require.NoError(t, err)
			err = m.Within(10*time.Second).LockTx(background, tx)
			require.ErrorIs(t, err, txlock.ErrIsolation)
			require.ErrorIs(t, m.TryLockTx(background, tx), txlock.ErrIsolation)
			require.Less(t, time.Since(start), 5*time.Second, "refused without waiting")
			require.NoError(t, holder.Unlock(background))
			require.NoError(t, f.exec(background, tx, "SELECT 1"))
		} else {
			// InnoDB takes the snapshot at the first plain read, which comes after the lock here.
			table := f.makeTable(t, "level int primary key, n int")
			f.admitted(t, "INSERT INTO "+table+" VALUES (1, 10)")
			require.NoError(t, m.TryLockTx(background, tx))
			f.admitted(t, "UPDATE "+table+" SET n = 9")
			n, err := f.query(background, tx, "SELECT n FROM "+table)
			require.NoError(t, err)
			require.Equal(t, "9", n)
			f.admittedLater(t, tx, "DROP TABLE "+table)
			continue
		}
		require.NoError(t, f.end(background, tx, false))
		f.free(t, f.key("stale"))
	}
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelReadUncommitted} {
		tx := f.begin(t, dsn, level)
		require.NoError(t, m.LockTx(background, tx))
		require.NoError(t, f.end(background, tx, false))
	}
}

// admittedLater ends tx first, which would block the statement.
func (f *fixture[Tx]) admittedLater(t *testing.T, tx Tx, query string) {
	t.Helper()
	require.NoError(t, f.end(background, tx, false))
	f.admitted(t, query)
}

func endedTransaction[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	tx := f.guest(t)
	require.NoError(t, f.end(background, tx, true))
	require.Error(t, f.locks.Mutex(f.key("ended")).LockTx(background, tx))
	require.Error(t, f.locks.Mutex(f.key("ended")).TryLockTx(background, tx))
	// Its connection may be somebody else's by now.
	if pooled, ok := any(f).(*fixture[pgx.Tx]); ok {
		pooled.endedOnPool(t)
	}
	var none Tx
	require.ErrorContains(t, f.locks.Mutex(f.key("ended")).LockTx(background, none), "nil transaction")
	f.free(t, f.key("ended"))
}

// endedOnPool ends a transaction on a pool of one connection, begins another one there, and locks
// in the first.
func (f *fixture[Tx]) endedOnPool(t *testing.T) {
	config, err := pgxpool.ParseConfig(f.dsn(f.label, "", nil))
	require.NoError(t, err)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(background, config)
	require.NoError(t, err)
	defer pool.Close()
	ended, err := pool.Begin(background)
	require.NoError(t, err)
	require.NoError(t, ended.Rollback(background))
	other, err := pool.Begin(background)
	require.NoError(t, err)
	pgxLocks := any(f.locks).(*txlock.Locker[pgx.Tx])
	require.ErrorIs(t, pgxLocks.Mutex(f.key("ended")).LockTx(background, ended), pgx.ErrTxClosed)
	f.free(t, f.key("ended"))
	require.NoError(t, other.Rollback(background))
}
