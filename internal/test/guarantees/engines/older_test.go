package engines

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// Version 0.1 knew semaphores and elections by their names. Install does not change its tables,
// which may be in use, and says what to do.
func TestTablesOfVersion01(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			if e.Postgres {
				tablesOfVersion01(t, e, testbed.PgxOpened())
			} else {
				tablesOfVersion01(t, e, testbed.MySQLOpened())
			}
		})
	}
}

func tablesOfVersion01[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(16))
	require.NoError(t, f.Locks.Install(background))
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
