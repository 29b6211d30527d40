package engines

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// The name of the lock table goes on to mean what it meant at first: work that changes the
// session's schema moves nobody to the locks of another table.
func TestOtherTable(t *testing.T) {
	t.Parallel()
	testbed.Each(t, testbed.Engines, func(t *testing.T, e *testbed.Engine) {
		var a, b, change string
		if e.Postgres {
			dsn := newDatabase(t, e)
			a, b, change = dsn+"&search_path=shop", dsn+"&search_path=tenant", "set search_path = tenant"
			admin := must.Get(sql.Open("pgx", dsn))(t)
			database.Exec(t, admin, "create schema shop; create schema tenant")
			require.NoError(t, admin.Close())
		} else {
			a, b = newSchema(t, e), newSchema(t, e)
			change = "USE " + b
			a, b = e.DSNFor(a, "", nil), e.DSNFor(b, "", nil)
		}
		onSQL := testbed.MySQLSQL
		if e.Postgres {
			onSQL = testbed.PostgresSQL
			for _, c := range testbed.PostgresPgx {
				t.Run(c.Name, func(t *testing.T) { staysAtItsTable(t, c, a, b, change) })
			}
		}
		for _, c := range onSQL {
			t.Run(c.Name, func(t *testing.T) { staysAtItsTable(t, c, a, b, change) })
		}
	})
}

// newSchema makes a database of MySQL.
func newSchema(t *testing.T, e *testbed.Engine) (name string) {
	name = strings.ToLower(testbed.NewLabel())
	e.AsAdmin(t, "CREATE DATABASE "+name)
	t.Cleanup(func() { e.AsAdmin(t, "DROP DATABASE "+name) })
	return name
}

// staysAtItsTable locks at dsn, where work makes the change that leads to the tables at other.
func staysAtItsTable[Tx any](t *testing.T, c testbed.Client[Tx], dsn, other, change string) {
	for _, at := range []string{dsn, other} {
		require.NoError(t, c.Locker(t, at, 2, txlock.WithSlots(64)).Install(background))
	}
	holder := c.Locker(t, dsn, 4)
	must.Get(holder.Once("done").Do(background, idle[Tx]))(t) // or another client has done it
	hold := func(m *txlock.Mutex[Tx]) {
		lock := testbed.Lock(t, m)
		t.Cleanup(func() { require.NoError(t, lock.Unlock(background)) })
	}
	hold(holder.Mutex("job"))
	hold(holder.Semaphore("permits", 1))

	driver, p := c.Connect(t, dsn, 1)
	t.Cleanup(p.Close)
	locks := txlock.New(driver, txlock.WithFencing())
	free := must.Get(locks.Mutex("free").Lock(background))(t) // looks the table up
	testbed.Unlock(t, free)
	for name, call := range map[string]func() error{
		"TryLock":   func() error { _, err := locks.Mutex("job").TryLock(background); return err },
		"Do":        func() error { return locks.Mutex("job").Within(100*time.Millisecond).Do(background, idle[Tx]) },
		"Shared":    func() error { return locks.Mutex("job").Shared().TryDo(background, idle[Tx]) },
		"several":   func() error { return locks.Mutex("job", "a", "b").TryDo(background, idle[Tx]) },
		"Semaphore": func() error { return locks.Semaphore("permits", 1).TryDo(background, idle[Tx]) },
	} {
		require.NoError(t, locks.Mutex("free").Do(background, func(ctx context.Context, tx Tx) error {
			return c.Exec(ctx, tx, change)
		}), name)
		require.ErrorIs(t, call(), txlock.ErrNotAcquired, name)
	}
	require.True(t, testbed.IsDone(t, locks.Once("done")))
	next := testbed.Lock(t, locks.Mutex("free"))
	require.Greater(t, next.Token(), free.Token())
	testbed.Unlock(t, next)
	p.Close()

	tx := c.Begin(t, dsn, sql.LevelDefault)
	require.NoError(t, c.Exec(background, tx, change))
	require.ErrorIs(t, holder.Mutex("job").TryLockTx(background, tx), txlock.ErrNotAcquired)
	require.NoError(t, holder.Mutex("free").LockTx(background, tx))
	require.NoError(t, c.End(background, tx, false))
}

// What docs/coming-from.md says: work whose first statement takes a lock of the server's own and
// programs that hold that lock exclude each other, until the transaction of the work has ended.
func TestOldLockInTheWork(t *testing.T) {
	testbed.EachOpened(t, oldLockInTheWork[pgx.Tx], oldLockInTheWork[*sql.Tx])
}

func oldLockInTheWork[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	old := "'" + f.Label + "'"
	takes, try, give := "SELECT GET_LOCK(%s, 60)", "SELECT GET_LOCK(%s, 0)", "SELECT RELEASE_LOCK(%s)"
	waiting := "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '" + f.Label +
		"' AND state = 'User lock'"
	if e.Postgres {
		waiting = "SELECT COUNT(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND " +
			"split_part(application_name, '#', 1) = '" + f.Label + "'"
		old = fmt.Sprint(crc32.ChecksumIEEE([]byte(f.Label)))
		takes, try = "SELECT pg_advisory_xact_lock(%s)", "SELECT pg_try_advisory_lock(%s)::int"
		give = "SELECT pg_advisory_unlock(%s)::int"
	}
	program := must.Get(f.Admin.Conn(background))(t)
	defer program.Close()
	ask := func(function string) (granted bool) {
		t.Helper()
		require.NoError(t, program.QueryRowContext(background, fmt.Sprintf(function, old)).Scan(&granted))
		return granted
	}
	m, fails := f.Locks.Mutex(f.Key("report")), errors.New("fails")
	for _, end := range []error{nil, fails} {
		require.ErrorIs(t, m.Do(background, func(ctx context.Context, tx Tx) error {
			require.NoError(t, testbed.ErrorOf(f.Query(ctx, tx, fmt.Sprintf(takes, old))))
			require.False(t, ask(try), "the old program has got it")
			return end
		}), end)
		// On MySQL and MariaDB the name ends with the connection; the server may notice that later.
		eventually.True(t, "the old lock is free", func() bool { return ask(try) })
		worked := testbed.Go(func() error {
			return m.Do(background, func(ctx context.Context, tx Tx) error {
				return testbed.ErrorOf(f.Query(ctx, tx, fmt.Sprintf(takes, old)))
			})
		})
		eventually.Every(t, "the work waits for the old program", testbed.PollEvery, func() bool {
			return f.Total(t, waiting) == 1
		})
		require.Empty(t, worked)
		require.True(t, ask(give))
		require.NoError(t, <-worked)
	}
}
