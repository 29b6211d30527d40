package engines

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/guarantees/testbed"
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
			require.ErrorContains(t, err, "run Install, or the SQL of Schema")
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
				f.AsAdmin(t, "REPLACE INTO "+table+"_runs SELECT 4242, MAX(epoch), 1 FROM "+table+"_epochs")
				require.NoError(t, e.Admin.QueryRow("SELECT MAX(epoch) FROM "+table+"_runs").Scan(&run))
				return run
			}
			first, err := f.Locks.Mutex("a").Lock(background)
			require.NoError(t, err)
			granted := f.Queue(t, 1, "a")
			other := away()
			require.NoError(t, first.Unlock(background))
			second := testbed.Receive(t, granted)
			require.Greater(t, testbed.RunOf(second.Token()), other)
			require.NoError(t, second.Unlock(background))
			other = away()
			third, err := f.Locks.Mutex("a").Lock(background)
			require.NoError(t, err)
			require.Greater(t, testbed.RunOf(third.Token()), other)
			require.NoError(t, third.Unlock(background))
		}
	})
}
