package engines

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// Where the server rolls the whole transaction back when a wait was too long, that is a loss, and
// no lock that was missed.
func TestRollbackOnTimeout(t *testing.T) {
	t.Parallel()
	eachOwnServer(t, func(t *testing.T, e *testbed.Engine, _ *servers.Server) {
		f := testbed.NewFixture(t, e, testbed.MySQLSQL[0])
		require.NoError(t, f.Locks.Install(background))
		table := f.MakeTable(t, "id int primary key, n int")
		f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1, 0), (2, 0)")
		held, err := f.Locks.Rows(table, "id", 1).Lock(background)
		require.NoError(t, err)
		for call, m := range map[string]*txlock.Mutex[*sql.Tx]{
			"LockTx": f.Locks.Rows(table, "id", 1), "TryLockTx": f.Locks.Rows(table, "id", 1),
		} {
			tx := f.Guest(t)
			require.NoError(t, f.Exec(background, tx, "UPDATE "+table+" SET n = n + 1 WHERE id = 2"))
			lock, want := m.LockTx, txlock.ErrLost
			if call == "TryLockTx" {
				if lock = m.TryLockTx; e.Kind == servers.MySQL { // NOWAIT is an error of its own there
					want = txlock.ErrNotAcquired
				}
			}
			begun := time.Now()
			require.ErrorIs(t, lock(background, tx), want, call)
			require.Less(t, time.Since(begun), 20*time.Second)
			require.NoError(t, f.End(background, tx, true))
		}
		require.NoError(t, held.Unlock(background))
	}, "--innodb-rollback-on-timeout=ON", "--innodb-lock-wait-timeout=1")
}
