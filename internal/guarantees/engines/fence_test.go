package engines

import (
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
