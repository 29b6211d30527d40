package engines

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
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
