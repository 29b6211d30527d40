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
	"github.com/txlock/txlock/internal/guarantees/testbed"
)

// The name of the lock table goes on to mean what it meant at first, or the call is an error that
// says what it means here: work that changes the session's schema moves nobody to other locks.
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
				for i, c := range testbed.MySQLSQL {
					t.Run(c.Name, func(t *testing.T) { staysAtItsTable(t, c, a, change, i == len(testbed.MySQLSQL)-1) })
				}
				return
			}
			for _, c := range []testbed.Client[pgx.Tx]{testbed.PgxOnPool(""), testbed.PgxOnPool("simple protocol")} {
				t.Run(c.Name, func(t *testing.T) { staysAtItsTable(t, c, a, change, false) })
			}
			t.Run("opened", func(t *testing.T) { staysAtItsTable(t, testbed.PgxOpened(), a, change, true) })
			t.Run("sql.DB", func(t *testing.T) { staysAtItsTable(t, testbed.PostgresSQL[0], a, change, false) })
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

func staysAtItsTable[Tx any](t *testing.T, c testbed.Client[Tx], dsn, change string, owned bool) {
	others, otherPool := c.Connect(t, dsn, 4)
	t.Cleanup(otherPool.Close)
	holder := txlock.New(others)
	hold := func(m *txlock.Mutex[Tx]) {
		lock, err := m.Lock(background)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, lock.Unlock(background)) })
	}
	hold(holder.Mutex("job"))
	hold(holder.Semaphore("permits", 1))

	driver, p := c.Connect(t, dsn, 1)
	t.Cleanup(p.Close)
	locks := txlock.New(driver)
	nothing := func(context.Context, Tx) error { return nil }
	require.ErrorIs(t, locks.Semaphore("permits", 1).TryDo(background, nothing), txlock.ErrNotAcquired)
	calls := map[string]func() error{
		"TryDo":     func() error { return locks.Mutex("job").TryDo(background, nothing) },
		"Do":        func() error { return locks.Mutex("job").Within(100*time.Millisecond).Do(background, nothing) },
		"Shared":    func() error { return locks.Mutex("job").Shared().TryDo(background, nothing) },
		"several":   func() error { return locks.Mutex("job", "a", "b").TryDo(background, nothing) },
		"Semaphore": func() error { return locks.Semaphore("permits", 1).TryDo(background, nothing) },
	}
	for name, call := range calls {
		require.NoError(t, locks.Mutex("free").Do(background, func(ctx context.Context, tx Tx) error {
			return c.Exec(ctx, tx, change)
		}), name)
		err := call()
		if owned {
			require.ErrorIs(t, err, txlock.ErrNotAcquired, name)
			continue
		}
		require.ErrorContains(t, err, "means another table on this connection", name)
		require.ErrorContains(t, err, ", and not ", name)
		p.Close()
		driver, p = c.Connect(t, dsn, 1)
		t.Cleanup(p.Close)
		locks = txlock.New(driver)
		require.ErrorIs(t, locks.Semaphore("permits", 1).TryDo(background, nothing), txlock.ErrNotAcquired)
	}
	tx := c.Begin(t, dsn, sql.LevelDefault)
	require.NoError(t, c.Exec(background, tx, change))
	for _, err := range []error{
		locks.Mutex("job").TryLockTx(background, tx),
		locks.Mutex("job").Within(100*time.Millisecond).LockTx(background, tx),
	} {
		require.ErrorContains(t, err, "means another table on this connection")
	}
	require.NoError(t, c.Exec(background, tx, "SELECT 1"))
	require.NoError(t, c.End(background, tx, false))
}

// A temporary table of the lock table's name is found out.
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

			driver, p = testbed.MySQLSQL[0].Connect(t, dsn, 1)
			t.Cleanup(p.Close)
			for _, text := range []string{hide, fill} {
				_, err = p.DB.Exec(text)
				require.NoError(t, err)
			}
			_, err = txlock.New(driver).Mutex("job").TryLock(background)
			require.ErrorContains(t, err, "a temporary one of the name")
		})
	}
}
