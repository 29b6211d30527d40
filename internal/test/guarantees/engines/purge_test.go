package engines

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// A lock that is held, and one that is awaited, keep nobody waiting who changes another table. On
// MySQL they do not hold back purge either. On MariaDB they do, as every transaction does that may
// write: the documents say so, and this test sees it when a version stops doing that.
func TestInNobodysWay(t *testing.T) {
	t.Parallel()
	eachOwnMySQL(t, func(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) { // nobody else holds back purge
		e.AsAdmin(t, "SET GLOBAL innodb_monitor_enable = 'trx_rseg_history_len'")
		// Else the count is that of up to 128 rounds of purge before.
		e.AsAdmin(t, "SET GLOBAL innodb_purge_rseg_truncate_frequency = 1")
		f, _ := testbed.NewFixtureWithTable(t, e, c, txlock.WithFencing(), txlock.WithSlots(64))
		require.NoError(t, f.Locks.Install(background))
		table := f.MakeTable(t, "id int primary key, n int")
		purged(t, f.Engine, "before")
		lock, err := f.Locks.Mutex("a").Lock(background)
		require.NoError(t, err)
		granted := f.Queue(t, 1, "a")

		changes(t, e, table)
		if e.Kind == servers.MariaDB {
			require.GreaterOrEqual(t, history(t, e), updates)
		} else {
			purged(t, e, "under a holder and a waiter")
		}
		require.NoError(t, lock.Unlock(background))
		require.NoError(t, testbed.Receive(t, granted).Unlock(background))
		purged(t, e, "after the locks")
	})
}

// updates is how many transactions leave a row version behind.
const updates = 2000

// changes are a migration of a table and many updates of its rows, each in a transaction.
func changes(t *testing.T, e *testbed.Engine, table string) {
	t.Helper()
	conn, err := e.Admin.Conn(background)
	require.NoError(t, err)
	defer conn.Close()
	migration := []string{
		"SET lock_wait_timeout = 10, innodb_lock_wait_timeout = 10", "INSERT INTO " + table + " VALUES (1, 0)",
		"ALTER TABLE " + table + " ADD COLUMN more int, ALGORITHM = COPY", "CREATE INDEX by_n ON " + table + " (n)",
	}
	for i := range updates {
		migration = append(migration, fmt.Sprintf("UPDATE %s SET n = %d", table, i+1))
	}
	migration = append(migration, "SET lock_wait_timeout = DEFAULT, innodb_lock_wait_timeout = DEFAULT")
	for _, statement := range migration {
		_, err := conn.ExecContext(background, statement)
		require.NoError(t, err, statement)
	}
}

// history is how many transactions have left row versions that are not purged.
func history(t *testing.T, e *testbed.Engine) (n int) {
	t.Helper()
	const query = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'"
	require.NoError(t, e.Admin.QueryRow(query).Scan(&n))
	return n
}

// purged waits until most of the history is gone.
func purged(t *testing.T, e *testbed.Engine, when string) {
	t.Helper()
	began := time.Now()
	eventually.True(t, "purge "+when, func() bool { return history(t, e) < updates/2 })
	t.Logf("%s: history %d after %v", when, history(t, e), time.Since(began).Round(time.Millisecond))
}
