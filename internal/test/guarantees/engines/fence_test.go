package engines

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// A fence that version 0.1 has made lacks a column. That is told, and Install adds it, as the SQL
// of Schema does.
func TestFenceOfBefore(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f, table := testbed.NewInstalled(t, e, testbed.PgxOpened(), txlock.WithFencing(), txlock.WithSlots(16))
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
			f, table := testbed.NewInstalled(t, e, c, txlock.WithFencing(), txlock.WithSlots(16))
			away := func() (run int64) {
				f.AsAdmin(t, "INSERT INTO "+table+"_epochs VALUES ()")
				f.AsAdmin(t, "REPLACE INTO "+table+"_runs SELECT 4242, MAX(epoch), UUID_SHORT() FROM "+table+"_epochs")
				require.NoError(t, e.Admin.QueryRow("SELECT MAX(epoch) FROM "+table+"_runs").Scan(&run))
				return run
			}
			all := []string{"a", "b", "c"} // a wait for each, so for the first of their slots and for the last
			for _, key := range all {
				first := testbed.Lock(t, f.Locks.Mutex(key))
				granted := make(chan *txlock.Lock, 1)
				go func() {
					if lock, err := f.Locks.Mutex(all...).Lock(background); err == nil {
						granted <- lock
					}
				}()
				f.Waiters(t, 1)
				other := away()
				testbed.Unlock(t, first)
				second := testbed.Receive(t, granted)
				require.Greater(t, testbed.RunOf(second.Token()), other, key)
				testbed.Unlock(t, second)
			}
			other := away()
			permit := testbed.TryLock(t, f.Locks.Semaphore("s", 3))
			require.Greater(t, testbed.RunOf(permit.Token()), other)
			testbed.Unlock(t, permit)
			other = away()
			third := testbed.Lock(t, f.Locks.Mutex("a"))
			require.Greater(t, testbed.RunOf(third.Token()), other)
			testbed.Unlock(t, third)
		}
	})
}

// A nested Lock that is cancelled while it waits for a connection, to number the server's run, has
// no token. The session goes on.
func TestCancelledNumbering(t *testing.T) {
	t.Parallel()
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) {
		for _, c := range []testbed.Client[*sql.Tx]{testbed.MySQLOpened(), testbed.MySQLSQL[0]} {
			f, table := testbed.NewInstalled(t, e, c, txlock.WithFencing(), txlock.WithSlots(16))
			locks := f.Another(t, 1, txlock.WithTable(table), txlock.WithFencing())
			outer := testbed.Lock(t, locks.Mutex("a"))
			f.AsAdmin(t, "DELETE FROM "+table+"_runs")
			ctx, cancel := context.WithCancel(outer.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			_, err := locks.Mutex("b").Lock(ctx)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, txlock.ErrLost)
			testbed.Unlock(t, outer)
		}
	})
}

// Version 0.1 knew semaphores and elections by their names. Install does not change its tables,
// which may be in use, and says what to do.
func TestTablesOfVersion01(t *testing.T) {
	testbed.EachOpened(t, tablesOfVersion01[pgx.Tx], tablesOfVersion01[*sql.Tx])
}

func tablesOfVersion01[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewInstalled(t, e, c, txlock.WithSlots(16))
	for _, beside := range []string{"_leaders", "_permits"} {
		f.AsAdmin(t, "DROP TABLE "+table+beside)
		f.AsAdmin(t, "CREATE TABLE "+table+beside+" (id int PRIMARY KEY, semaphore varchar(99))")
		err := f.Locks.Install(background)
		require.ErrorIs(t, err, txlock.ErrNotInstalled)
		require.ErrorContains(t, err, "was made by version 0.1")
		require.ErrorContains(t, err, "run DROP TABLE ")
		f.AsAdmin(t, "DROP TABLE "+table+beside)
		require.NoError(t, f.Locks.Install(background))
	}
}
