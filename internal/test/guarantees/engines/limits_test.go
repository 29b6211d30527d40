package engines

import (
	"context"
	"database/sql"
	"net/url"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// A limit of the session on its statements ends no wait: each waits on, with a limit of its own.
func TestLimitOnStatements(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		config, err := mysql.ParseDSN(f.DSNFor(f.Label, "", nil))
		require.NoError(t, err)
		config.Params = map[string]string{"max_execution_time": "2000"}
		if f.MariaDB {
			config.Params = map[string]string{"max_statement_time": "2"}
		}
		driver, pool := f.Connect(t, config.FormatDSN(), 8)
		t.Cleanup(pool.Close)
		locks := txlock.New(driver, txlock.WithTable(f.Table()))

		held, err := f.Locks.Mutex(f.Key("a")).Lock(background)
		require.NoError(t, err)
		permit, err := f.Locks.Semaphore(f.Key("s"), 1).Lock(background)
		require.NoError(t, err)
		got := make(chan error, 5)
		hold := func(m *txlock.Mutex[*sql.Tx], ctx context.Context) error {
			lock, err := m.Lock(ctx)
			if err == nil {
				err = lock.Unlock(background)
			}
			return err
		}
		go func() { got <- hold(locks.Mutex(f.Key("a")), background) }()
		go func() {
			got <- locks.Mutex(f.Key("b")).Do(background, func(ctx context.Context, _ *sql.Tx) error {
				return hold(locks.Mutex(f.Key("a")), ctx)
			})
		}()
		other, pool := f.Connect(t, config.FormatDSN(), 6)
		t.Cleanup(pool.Close)
		for range 3 { // two wait for the first, in the queue, and are cut at once
			go func() {
				got <- hold(txlock.New(other, txlock.WithTable(f.Table())).Semaphore(f.Key("s"), 1), background)
			}()
		}
		eventually.True(t, "three wait with a limit of ours, beside the nested wait and the queue's head", func() bool {
			require.Empty(t, got, "a wait has ended")
			return f.Total(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '"+f.Label+
				"' AND info LIKE '%MAX_EXECUTION_TIME(2073600000)%'") == 3
		})
		require.NoError(t, held.Unlock(background))
		require.NoError(t, permit.Unlock(background))
		for range 5 {
			require.NoError(t, <-got)
		}
	})
}

// A readTimeout of the DSN of mysql.Open is no limit of a wait: the wait is a read.
func TestReadTimeout(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL[1:], func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		config, err := mysql.ParseDSN(f.DSNFor(f.Label, "", nil))
		require.NoError(t, err)
		config.ReadTimeout = time.Millisecond
		driver, pool := f.Connect(t, config.FormatDSN(), 2)
		t.Cleanup(pool.Close)
		held, err := f.Locks.Mutex(f.Key("a")).Lock(background)
		require.NoError(t, err)
		got := make(chan error, 1)
		go func() {
			lock, err := txlock.New(driver, txlock.WithTable(f.Table())).Mutex(f.Key("a")).Lock(background)
			if err == nil {
				err = lock.Unlock(background)
			}
			got <- err
		}()
		f.Waiters(t, 1)
		require.NoError(t, held.Unlock(background))
		require.NoError(t, <-got)
	})
}

// A limit of the session on waits for locks ends a wait that has no limit of its caller's, of
// whatever kind, and no other.
func TestLimitOnWaits(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines { // a pooler has no such setting
		if e.Postgres {
			t.Run(e.Name, func(t *testing.T) { clientsOf(t, e, limitedWaits[pgx.Tx], limitedWaits[*sql.Tx]) })
		}
	}
}

func limitedWaits[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const limit = 100 * time.Millisecond
	f := testbed.NewFixture(t, e, c)
	driver, pool := f.Connect(t, f.DSNFor(f.Label, "", url.Values{"lock_timeout": {limit.String()}}), 8)
	t.Cleanup(pool.Close)
	locks := txlock.New(driver, txlock.WithTable(f.Table()))
	key, permit := f.Locks.Mutex(f.Key("k")), f.Locks.Semaphore(f.Key("s"), 1)
	var holds []*txlock.Lock
	for _, m := range []*txlock.Mutex[Tx]{key, permit} {
		lock, err := m.Lock(background)
		require.NoError(t, err)
		holds = append(holds, lock)
	}
	waits := []<-chan error{testbed.LockLater(permit)}
	eventually.Every(t, "the first of the semaphore's queue", testbed.PollEvery, func() bool {
		shown := f.Look(t, f.Key("s"))
		return len(shown) == 1 && len(shown[0].Waiters) == 1
	})
	for i, limited := range []*txlock.Mutex[Tx]{
		locks.Mutex(f.Key("k")), locks.Mutex(f.Key("k")).Shared(), locks.Semaphore(f.Key("s"), 1),
	} {
		_, err := limited.Lock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.ErrorContains(t, err, "lock timeout", "whose limit it was")
		_, err = limited.Within(3 * limit).Lock(background)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		waits = append(waits, testbed.LockLater(limited.Within(2*time.Minute)))
		f.Waiters(t, i+1)
	}
	<-time.After(3 * limit)
	f.Waiters(t, 3)
	for _, lock := range holds {
		require.NoError(t, lock.Unlock(background))
	}
	for _, done := range waits {
		require.NoError(t, testbed.Receive(t, done))
	}
}
