package engines

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// A fence that version 0.1 has made lacks a column. That is told, and Install adds it, as the SQL
// of Schema does.
func TestFenceOfBefore(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f, table := testbed.NewFixtureWithTable(t, e, testbed.PgxOpened(), txlock.WithFencing(), txlock.WithSlots(16))
		require.NoError(t, f.Locks.Install(background))
		var last int64
		draw := func() error {
			lock, err := f.Locks.Mutex("a").Lock(background)
			if err != nil {
				return err
			}
			require.Greater(t, lock.Token(), last)
			last = lock.Token()
			return lock.Unlock(background)
		}
		require.NoError(t, draw())
		for _, complete := range []func() error{
			func() error { return f.Locks.Install(background) },
			func() error {
				f.AsAdmin(t, f.Locks.Schema())
				return nil
			},
		} {
			e.AsAdmin(t, "ALTER TABLE "+table+"_epochs DROP COLUMN server")
			err := draw()
			require.ErrorIs(t, err, txlock.ErrNotInstalled)
			require.ErrorContains(t, err, "run install, or the SQL of schema")
			require.NoError(t, complete())
			require.NoError(t, draw())
		}
	})
}

// While a call waits, or a connection is idle, another server takes over and this one comes back.
// The next token is of a run behind the other's.
func TestPrimaryAgain(t *testing.T) {
	t.Parallel()
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) {
		for _, c := range []testbed.Client[*sql.Tx]{testbed.MySQLOpened(), testbed.MySQLSQL[0]} {
			f, table := testbed.NewFixtureWithTable(t, e, c, txlock.WithFencing(), txlock.WithSlots(16))
			require.NoError(t, f.Locks.Install(background))
			away := func() (run int64) {
				f.AsAdmin(t, "INSERT INTO "+table+"_epochs VALUES ()")
				f.AsAdmin(t, "REPLACE INTO "+table+"_runs SELECT 4242, MAX(epoch), UUID_SHORT() FROM "+table+"_epochs")
				require.NoError(t, e.Admin.QueryRow("SELECT MAX(epoch) FROM "+table+"_runs").Scan(&run))
				return run
			}
			all := []string{"a", "b", "c"} // a wait for each, so for the first of their slots and for the last
			for _, key := range all {
				first, err := f.Locks.Mutex(key).Lock(background)
				require.NoError(t, err)
				granted := make(chan *txlock.Lock, 1)
				go func() {
					if lock, err := f.Locks.Mutex(all...).Lock(background); err == nil {
						granted <- lock
					}
				}()
				f.Waiters(t, 1)
				other := away()
				require.NoError(t, first.Unlock(background))
				second := testbed.Receive(t, granted)
				require.Greater(t, testbed.RunOf(second.Token()), other, key)
				require.NoError(t, second.Unlock(background))
			}
			other := away()
			permit, err := f.Locks.Semaphore("s", 3).TryLock(background)
			require.NoError(t, err)
			require.Greater(t, testbed.RunOf(permit.Token()), other)
			require.NoError(t, permit.Unlock(background))
			other = away()
			third, err := f.Locks.Mutex("a").Lock(background)
			require.NoError(t, err)
			require.Greater(t, testbed.RunOf(third.Token()), other)
			require.NoError(t, third.Unlock(background))
		}
	})
}

// A table of runs that an earlier version has made in memory.
func TestRunsOfBefore(t *testing.T) {
	t.Parallel()
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) {
		f, table := testbed.NewFixtureWithTable(t, e, testbed.MySQLOpened(), txlock.WithFencing(), txlock.WithSlots(16))
		require.NoError(t, f.Locks.Install(background))
		e.AsAdmin(t, "ALTER TABLE "+table+"_runs ENGINE=MEMORY")
		first, err := f.Locks.Mutex("a").Lock(background)
		require.NoError(t, err)
		require.NoError(t, first.Unlock(background))
		require.NoError(t, f.Locks.Install(background))
		var name, definition string
		require.NoError(t, e.Admin.QueryRow("SHOW CREATE TABLE "+table+"_runs").Scan(&name, &definition))
		require.Contains(t, definition, "InnoDB")
		second, err := f.Locks.Mutex("a").Lock(background)
		require.NoError(t, err)
		require.Equal(t, testbed.RunOf(first.Token()), testbed.RunOf(second.Token()))
		require.Greater(t, second.Token(), first.Token())
		require.NoError(t, second.Unlock(background))
	})
}

// A nested Lock that is cancelled while it waits for a connection, to number the server's run, has
// no token. The session goes on.
func TestCancelledNumbering(t *testing.T) {
	t.Parallel()
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) {
		for _, c := range []testbed.Client[*sql.Tx]{testbed.MySQLOpened(), testbed.MySQLSQL[0]} {
			f, table := testbed.NewFixtureWithTable(t, e, c, txlock.WithFencing(), txlock.WithSlots(16))
			require.NoError(t, f.Locks.Install(background))
			driver, pool := f.Connect(t, f.DSNFor(f.Label, "", nil), 1)
			t.Cleanup(pool.Close)
			locks := txlock.New(driver, txlock.WithTable(table), txlock.WithFencing())
			t.Cleanup(func() { require.NoError(t, locks.Close()) })
			outer, err := locks.Mutex("a").Lock(background)
			require.NoError(t, err)
			f.AsAdmin(t, "DELETE FROM "+table+"_runs")
			ctx, cancel := context.WithCancel(outer.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			_, err = locks.Mutex("b").Lock(ctx)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, txlock.ErrLost)
			require.NoError(t, outer.Unlock(background))
		}
	})
}
