package engines

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/wire"
)

// A try whose context ends while the server has it interrupts no other session of its user.
func TestInterruptedTry(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		if !e.Postgres {
			t.Run(e.Name, func(t *testing.T) {
				t.Parallel()
				interruptedTry(t, e, testbed.MySQLSQL[1]) // where a try is one query
			})
		}
	}
}

// A cancelled wait ends at the server, and keeps the caller's transaction, while somebody's
// prepared statement has bytes for an argument. Then information_schema.PROCESSLIST is an error.
func TestCancelBesideBytes(t *testing.T) {
	t.Parallel()
	server, err := servers.Start(background, servers.MySQL,
		servers.Options{Settings: []string{"--max-connections=100"}})
	require.NoError(t, err)
	f := testbed.NewFixture(t, testbed.Owned(t, server), testbed.MySQLSQL[0])
	ended := make(chan error, 1)
	go func() {
		const bytes = "DO GET_LOCK('bytes', 60), SLEEP(60), HEX(CONCAT(?, 'x'))"
		_, err := f.Admin.ExecContext(background, bytes, []byte("a\xff"))
		ended <- err
	}()
	eventually.True(t, "the statement runs", func() bool {
		return f.Total(t, "SELECT COUNT(IS_USED_LOCK('bytes'))") == 1
	})
	t.Cleanup(func() {
		_, err = f.Admin.ExecContext(background, fmt.Sprint("KILL ", f.Total(t, "SELECT IS_USED_LOCK('bytes')")))
		require.NoError(t, err)
		require.Error(t, testbed.Receive(t, ended))
	})
	err = f.Admin.QueryRowContext(background, "SELECT COUNT(INFO) FROM information_schema.PROCESSLIST").Scan(new(int))
	require.ErrorContains(t, err, "3854")

	lock, err := f.Locks.Mutex(f.Key("a")).Lock(background)
	require.NoError(t, err)
	tx := f.Guest(t)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	missed := make(chan error, 1)
	go func() { missed <- f.Locks.Mutex(f.Key("a")).LockTx(ctx, tx) }()
	eventually.True(t, "it waits", func() bool {
		return f.Total(t, "SELECT COUNT(*) FROM performance_schema.data_lock_waits") == 1
	})
	cancel()
	require.ErrorIs(t, testbed.Receive(t, missed), context.Canceled)
	require.NoError(t, f.Exec(background, tx, "SELECT 1"))
	require.NoError(t, tx.Rollback())
	require.NoError(t, lock.Unlock(background))
}

func interruptedTry(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
	f := testbed.NewFixture(t, e, c)
	config := ordinaryUser(t, f)
	direct, err := sql.Open("mysql", config.FormatDSN())
	require.NoError(t, err)
	t.Cleanup(func() { _ = direct.Close() })
	proxy, err := wire.Listen(e.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	config.Addr = proxy.Addr()
	driver, pool := c.Connect(t, config.FormatDSN(), 2)
	t.Cleanup(pool.Close)
	locks := txlock.New(driver, txlock.WithTable(e.Table()))
	t.Cleanup(func() { require.NoError(t, locks.Close()) })

	// The pool has a connection for the interrupt, and the newest session of the user is another.
	for range 2 {
		lock, err := locks.Mutex(f.Key("a")).Lock(background)
		require.NoError(t, err)
		other, err := locks.Mutex(f.Key("b")).Lock(background)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(background))
		require.NoError(t, other.Unlock(background))
	}
	held, err := f.Admin.Conn(background)
	require.NoError(t, err)
	t.Cleanup(func() { _ = held.Close() })
	grab := "SELECT GET_LOCK('" + f.Label + "', 60)"
	require.NoError(t, held.QueryRowContext(background, grab).Scan(new(int)))
	granted := make(chan error, 1)
	go func() { granted <- direct.QueryRow(grab).Scan(new(int)) }() // NULL when it is interrupted
	eventually.True(t, "another session waits", func() bool {
		return f.Total(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE user = '"+f.Label+
			"' AND info LIKE 'SELECT GET_LOCK%'") == 1
	})

	proxy.Delay(200 * time.Millisecond)
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	_, err = locks.Mutex(f.Key("a")).TryLock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	proxy.Delay(0)
	require.Empty(t, granted)
	_, err = held.ExecContext(background, "DO RELEASE_LOCK('"+f.Label+"')")
	require.NoError(t, err)
	require.NoError(t, testbed.Receive(t, granted))
}
