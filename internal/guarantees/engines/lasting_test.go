package engines

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/guarantees/testbed"
	"github.com/txlock/txlock/internal/servers"
)

// The settings that a connection of postgres.Open keeps.
const lastingSQL = "SELECT concat_ws(' ', current_setting('idle_in_transaction_session_timeout'), " +
	"current_setting('tcp_user_timeout'), current_setting('client_connection_check_interval'), " +
	"current_setting('default_transaction_read_only'))"

// settingsOf are the settings in the work of a Do, and those after a work that changes them.
func settingsOf(t *testing.T, f *testbed.Fixture[pgx.Tx], locks *txlock.Locker[pgx.Tx], change string) (shown string) {
	t.Helper()
	require.NoError(t, locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx pgx.Tx) (err error) {
		shown, err = f.Query(ctx, tx, lastingSQL)
		require.NoError(t, err)
		return f.Exec(ctx, tx, change)
	}))
	return shown
}

// What work changes in its session is noticed by the next lock, which has its lease and its guard
// all the same.
func TestLastingSettings(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewSizedFixture(t, e, testbed.PgxOpened(), 1, "")
		const want = "30s 30000 500ms on"
		for _, change := range []string{
			"SELECT 1", "RESET idle_in_transaction_session_timeout", "SELECT 1",
			"SET default_transaction_read_only = off", "SELECT 1", "SELECT 1",
		} {
			require.Equal(t, want, settingsOf(t, f, f.Locks, change), "before %s", change)
		}
		settingsOf(t, f, f.Locks, "SET idle_in_transaction_session_timeout = 0")
		lock, err := f.Locks.Mutex(f.Key("a")).Lock(background)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(background))
		require.Equal(t, want, settingsOf(t, f, f.Locks, "SELECT 1"))
	})
}

// Two Lockers on one driver keep their own leases.
func TestLeasesOfOneDriver(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		driver, err := postgres.Open(background, f.DSNFor(f.Label, "", nil)+"&pool_max_conns=1")
		require.NoError(t, err)
		brief := txlock.New(driver, txlock.WithTable(f.Table()), txlock.WithLease(7*time.Second))
		long := txlock.New(driver, txlock.WithTable(f.Table()), txlock.WithLease(time.Minute))
		t.Cleanup(func() { require.NoError(t, brief.Close()) }) // and the driver
		for range 3 {
			for range 2 {
				require.Equal(t, "7s 7000 500ms on", settingsOf(t, f, brief, "SELECT 1"))
			}
			require.Equal(t, "1min 60000 500ms on", settingsOf(t, f, long, "SELECT 1"))
		}
	})
}

// A wait that ends leaves its Locker's settings on the connection. The next lock of another Locker
// sets its own with its first statement: it does not find out after its wait, and queue again.
func TestLeaseAfterFailedWait(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		driver, err := postgres.Open(background, f.DSNFor(f.Label, "", nil)+"&pool_max_conns=1")
		require.NoError(t, err)
		brief := txlock.New(driver, txlock.WithTable(f.Table()), txlock.WithLease(7*time.Second))
		long := txlock.New(driver, txlock.WithTable(f.Table()), txlock.WithLease(time.Minute))
		t.Cleanup(func() { require.NoError(t, brief.Close()) }) // and the driver
		settingsOf(t, f, brief, "SELECT 1")
		held, err := f.Locks.Mutex(f.Key("held")).Lock(background)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(background)
		failed := make(chan error, 1)
		go func() {
			_, err := long.Mutex(f.Key("held")).Lock(ctx)
			failed <- err
		}()
		f.Waiters(t, 1)
		cancel()
		require.ErrorIs(t, testbed.Receive(t, failed), context.Canceled)

		granted := make(chan *txlock.Lock, 1)
		go func() {
			lock, err := brief.Mutex(f.Key("held")).Lock(background)
			if err == nil {
				granted <- lock
			}
		}()
		f.Waiters(t, 1)
		behind := f.Stranger(t, f.Key("held"))
		require.NoError(t, held.Unlock(background))
		lock := testbed.Receive(t, granted)
		require.Empty(t, behind)
		require.NoError(t, lock.Unlock(background))
		testbed.Receive(t, behind)
	})
}

// Behind a pooler, a lock leaves no setting on the server's session.
func TestNoLastingSettingsBehindPooler(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		if e.Kind != servers.Postgres18 {
			continue
		}
		pooler, err := servers.StartPgBouncer(background, e.Server, "default_pool_size=1")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
		f := testbed.NewSizedFixture(t, e.Through(pooler), testbed.PgxOpened(), 1, "")
		for range 3 {
			require.Equal(t, "30s 30000 500ms off", settingsOf(t, f, f.Locks, "SELECT 1"))
			lock, err := f.Locks.Mutex(f.Key("a")).Lock(background)
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(background))
			other, err := pgx.Connect(background, pooler.DSN)
			require.NoError(t, err)
			var shown string
			require.NoError(t, other.QueryRow(background, lastingSQL).Scan(&shown))
			require.NoError(t, other.Close(background))
			require.Equal(t, "0 0 0 off", shown)
		}
	}
}
