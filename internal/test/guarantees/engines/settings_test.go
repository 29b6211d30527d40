package engines

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// What work sets in its session is set anew for the next lock on that connection. With autocommit
// left on, each lock would end with the statement that takes it.
func TestSettingsOfWork(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL[1:], func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		const settings = "SELECT CONCAT_WS(' ', @@autocommit + 0, @@wait_timeout, " +
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
	onMySQL(t, testbed.MySQLSQL[1:], func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
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

// Two Lockers on one driver have their own leases, whatever the work before has set.
func TestLeasesOfOneDriver(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		driver, err := postgres.Open(background, f.DSNFor(f.Label, "", nil)+"&pool_max_conns=1")
		require.NoError(t, err)
		brief := txlock.New(driver, txlock.WithTable(f.Table()), txlock.WithLease(7*time.Second))
		long := txlock.New(driver, txlock.WithTable(f.Table()), txlock.WithLease(time.Minute))
		t.Cleanup(func() { require.NoError(t, brief.Close()) }) // and the driver
		has := func(locks *txlock.Locker[pgx.Tx], lease string) {
			require.NoError(t, locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx pgx.Tx) error {
				shown, err := f.Query(ctx, tx, "SELECT concat_ws(' ', "+
					"current_setting('idle_in_transaction_session_timeout'), current_setting('tcp_user_timeout'), "+
					"current_setting('client_connection_check_interval'))")
				require.NoError(t, err)
				require.Equal(t, lease, shown)
				return f.Exec(ctx, tx, "SET idle_in_transaction_session_timeout = 0")
			}))
		}
		for range 2 {
			has(brief, "7s 7000 500ms")
			has(brief, "7s 7000 500ms")
			has(long, "1min 60000 500ms")
		}
	})
}
