package engines

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// The name of the lock table goes on to mean what it meant at first: work that changes the
// session's schema moves nobody to the locks of another table.
func TestOtherTable(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			var a, b, change string
			if e.Postgres {
				dsn := newDatabase(t, e)
				a, b, change = dsn+"&search_path=shop", dsn+"&search_path=tenant", "set search_path = tenant"
				admin, err := sql.Open("pgx", dsn)
				require.NoError(t, err)
				_, err = admin.Exec("create schema shop; create schema tenant")
				require.NoError(t, err)
				require.NoError(t, admin.Close())
			} else {
				a, b = newSchema(t, e), newSchema(t, e)
				change = "USE " + b
				a, b = e.DSNFor(a, "", nil), e.DSNFor(b, "", nil)
			}
			for _, dsn := range []string{a, b} {
				if e.Postgres {
					installAt(t, testbed.PostgresSQL[0], dsn)
				} else {
					installAt(t, testbed.MySQLSQL[0], dsn)
				}
			}
			if !e.Postgres {
				for _, c := range testbed.MySQLSQL {
					t.Run(c.Name, func(t *testing.T) { staysAtItsTable(t, c, a, change) })
				}
				return
			}
			for _, c := range []testbed.Client[pgx.Tx]{testbed.PgxOnPool(""), testbed.PgxOnPool("simple protocol")} {
				t.Run(c.Name, func(t *testing.T) { staysAtItsTable(t, c, a, change) })
			}
			t.Run("opened", func(t *testing.T) { staysAtItsTable(t, testbed.PgxOpened(), a, change) })
			t.Run("sql.DB", func(t *testing.T) { staysAtItsTable(t, testbed.PostgresSQL[0], a, change) })
		})
	}
}

func installAt[Tx any](t *testing.T, c testbed.Client[Tx], dsn string) {
	driver, p := c.Connect(t, dsn, 2)
	defer p.Close()
	require.NoError(t, txlock.New(driver, txlock.WithSlots(64)).Install(background))
}

// newSchema makes a database of MySQL.
func newSchema(t *testing.T, e *testbed.Engine) (name string) {
	name = strings.ToLower(testbed.NewLabel())
	e.AsAdmin(t, "CREATE DATABASE "+name)
	t.Cleanup(func() { e.AsAdmin(t, "DROP DATABASE "+name) })
	return name
}

func staysAtItsTable[Tx any](t *testing.T, c testbed.Client[Tx], dsn, change string) {
	others, otherPool := c.Connect(t, dsn, 4)
	t.Cleanup(otherPool.Close)
	holder := txlock.New(others)
	nothing := func(context.Context, Tx) error { return nil }
	_, err := holder.Once("done").Do(background, nothing) // or another client has done it
	require.NoError(t, err)
	hold := func(m *txlock.Mutex[Tx]) {
		lock, err := m.Lock(background)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, lock.Unlock(background)) })
	}
	hold(holder.Mutex("job"))
	hold(holder.Semaphore("permits", 1))

	driver, p := c.Connect(t, dsn, 1)
	t.Cleanup(p.Close)
	locks := txlock.New(driver, txlock.WithFencing())
	free, err := locks.Mutex("free").Lock(background) // looks the table up
	require.NoError(t, err)
	require.NoError(t, free.Unlock(background))
	for name, call := range map[string]func() error{
		"TryLock":   func() error { _, err := locks.Mutex("job").TryLock(background); return err },
		"Do":        func() error { return locks.Mutex("job").Within(100*time.Millisecond).Do(background, nothing) },
		"Shared":    func() error { return locks.Mutex("job").Shared().TryDo(background, nothing) },
		"several":   func() error { return locks.Mutex("job", "a", "b").TryDo(background, nothing) },
		"Semaphore": func() error { return locks.Semaphore("permits", 1).TryDo(background, nothing) },
	} {
		require.NoError(t, locks.Mutex("free").Do(background, func(ctx context.Context, tx Tx) error {
			return c.Exec(ctx, tx, change)
		}), name)
		require.ErrorIs(t, call(), txlock.ErrNotAcquired, name)
	}
	_, done, err := locks.Once("done").Done(background)
	require.NoError(t, err)
	require.True(t, done)
	next, err := locks.Mutex("free").Lock(background)
	require.NoError(t, err)
	require.Greater(t, next.Token(), free.Token())
	require.NoError(t, next.Unlock(background))
	p.Close()

	tx := c.Begin(t, dsn, sql.LevelDefault)
	require.NoError(t, c.Exec(background, tx, change))
	require.ErrorIs(t, holder.Mutex("job").TryLockTx(background, tx), txlock.ErrNotAcquired)
	require.NoError(t, holder.Mutex("free").LockTx(background, tx))
	require.NoError(t, c.End(background, tx, false))
}

// Work that hides the lock table by a temporary one takes its connection with it.
func TestHiddenTable(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		if e.Postgres {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			dsn := e.DSNFor(newSchema(t, e), "", nil)
			installAt(t, testbed.MySQLSQL[0], dsn)
			hide := "CREATE TEMPORARY TABLE txlock_slots (slot INT PRIMARY KEY, slots INT)"
			fill := "INSERT INTO txlock_slots VALUES (0, 64)"
			for slot := 1; slot < 64; slot++ {
				fill += fmt.Sprintf(", (%d, 64)", slot)
			}
			opened := testbed.MySQLSQL[len(testbed.MySQLSQL)-1]
			holder, holders := opened.Connect(t, dsn, 2)
			t.Cleanup(holders.Close)
			lock, err := txlock.New(holder).Mutex("job").Lock(background)
			require.NoError(t, err)
			defer func() { require.NoError(t, lock.Unlock(background)) }()

			driver, p := opened.Connect(t, dsn, 1)
			t.Cleanup(p.Close)
			locks := txlock.New(driver)
			require.NoError(t, locks.Mutex("free").Do(background, func(ctx context.Context, tx *sql.Tx) error {
				if err := opened.Exec(ctx, tx, hide); err != nil {
					return err
				}
				return opened.Exec(ctx, tx, fill)
			}))
			_, err = locks.Mutex("job").TryLock(background)
			require.ErrorIs(t, err, txlock.ErrNotAcquired)
		})
	}
}
