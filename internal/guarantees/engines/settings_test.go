package engines

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/guarantees/testbed"
)

// What work sets in its session is set anew for the next lock on that connection. With autocommit
// left on, each lock would end with the statement that takes it.
func TestSettingsOfWork(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL[2:], func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		const settings = "SELECT CONCAT_WS(' ', CONNECTION_ID(), @@autocommit + 0, @@wait_timeout, " +
			"@@innodb_lock_wait_timeout, /*!80001 @@transaction_isolation, @@transaction_read_only + 0 */ " +
			"/*M! @@tx_isolation, @@tx_read_only + 0 */)"
		read := func(change string) (found string) {
			_ = f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) (err error) {
				found, err = f.Query(ctx, tx, settings)
				return errors.Join(err, f.Exec(ctx, tx, change))
			})
			return found
		}
		f.AsAdmin(t, "CREATE PROCEDURE "+f.Label+".silent() SET autocommit = 1")
		before := read("DO 0")
		for _, change := range []string{
			"SET autocommit = 1", "/* as ORMs do */ SET @@autocommit = 1", "CALL silent()", "DO 0; SET autocommit = 1",
			"SET SESSION wait_timeout = 28800", "SET innodb_lock_wait_timeout = 1", "SET SESSION TRANSACTION READ ONLY",
			"SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
		} {
			require.Equal(t, before, read(change))
			lock, err := f.Locks.Mutex(f.Key("a")).Lock(background)
			require.NoError(t, err, change)
			f.Taken(t, f.Key("a"))
			require.NoError(t, lock.Unlock(background))
			require.Equal(t, before, read("DO 0"), change)
		}
	})
}

// Work that goes to another database leaves it to no other: there the name of the lock table means
// another table.
func TestDatabaseOfWork(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		driver, pool := f.Connect(t, f.DSNFor(f.Label, "", nil), 1)
		t.Cleanup(pool.Close)
		locks := txlock.New(driver, txlock.WithTable(f.Table()))
		t.Cleanup(func() { require.NoError(t, locks.Close()) })
		read := func(change string, result error) (found string) {
			err := locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) (err error) {
				found, err = f.Query(ctx, tx, "SELECT DATABASE()")
				require.NoError(t, err)
				_ = f.Exec(ctx, tx, change) // several statements are an error for some clients
				return result
			})
			require.Equal(t, result == nil, err == nil, "%v", err)
			return found
		}
		before := read("DO 0", nil)
		for _, change := range []string{"USE information_schema", "/* */use`information_schema`", "DO 0; USE mysql"} {
			require.Equal(t, before, read(change, nil))
			require.Equal(t, before, read(change, errors.New("undone")), change)
			require.Equal(t, before, read("DO 0", nil), change)
		}
	})
}
