package engines

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// While a call waits, or a connection is idle, another server takes over and this one comes back.
// The next token is of a run behind the other's.
func TestPrimaryAgain(t *testing.T) {
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
				granted := testbed.Granted(t, f.Locks.Mutex(all...))
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
