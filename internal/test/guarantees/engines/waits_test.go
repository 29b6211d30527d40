package engines

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// A limit of the session on its statements ends no wait: each waits on, with a limit of its own.
func TestLimitOnStatements(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		limit := url.Values{"max_execution_time": {"2000"}}
		if f.MariaDB {
			limit = url.Values{"max_statement_time": {"2"}}
		}
		dsn := f.DSNFor(f.Label, "", limit)
		locks := f.AnotherBy(t, dsn, 8)
		held := testbed.Lock(t, f.Locks.Mutex(f.Key("a")))
		permit := testbed.Lock(t, f.Locks.Semaphore(f.Key("s"), 1))
		got := make(chan error, 5)
		go func() { got <- testbed.Cycle(background, locks.Mutex(f.Key("a"))) }()
		go func() {
			got <- locks.Mutex(f.Key("b")).Do(background, func(ctx context.Context, _ *sql.Tx) error {
				return testbed.Cycle(ctx, locks.Mutex(f.Key("a")))
			})
		}()
		for range 3 { // two wait for the first, in the queue, and are cut at once
			semaphore := f.AnotherBy(t, dsn, 2).Semaphore(f.Key("s"), 1)
			go func() { got <- testbed.Cycle(background, semaphore) }()
		}
		eventually.True(t, "three wait with a limit of ours, beside the nested wait and the queue's head", func() bool {
			require.Empty(t, got, "a wait has ended")
			return f.Total(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '"+f.Label+
				"' AND info LIKE '%MAX_EXECUTION_TIME(2073600000)%'") == 3
		})
		testbed.Unlock(t, held, permit)
		for range 5 {
			require.NoError(t, testbed.Receive(t, got))
		}
	})
}

// A readTimeout of the DSN of mysql.Open is no limit of a wait: the wait is a read.
func TestReadTimeout(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL[1:], func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		brief := f.AnotherBy(t, f.DSNFor(f.Label, "", url.Values{"readTimeout": {"1ms"}}), 2)
		held := testbed.Lock(t, f.Locks.Mutex(f.Key("a")))
		got := testbed.LockLater(brief.Mutex(f.Key("a")))
		f.Waiters(t, 1)
		testbed.Unlock(t, held)
		require.NoError(t, testbed.Receive(t, got))
	})
}

// A limit of the session on waits for locks ends a wait that has no limit of its caller's, of
// whatever kind, and no other.
func TestLimitOnWaits(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) { // a pooler has no such setting
		clientsOf(t, e, limitedWaits[pgx.Tx], limitedWaits[*sql.Tx])
	})
}

func limitedWaits[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const limit = 100 * time.Millisecond
	f := testbed.NewFixture(t, e, c)
	locks := f.AnotherBy(t, f.DSNFor(f.Label, "", url.Values{"lock_timeout": {limit.String()}}), 8)
	key, permit := f.Locks.Mutex(f.Key("k")), f.Locks.Semaphore(f.Key("s"), 1)
	var holds []*txlock.Lock
	for _, m := range []*txlock.Mutex[Tx]{key, permit} {
		holds = append(holds, testbed.Lock(t, m))
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
		require.ErrorIs(t, testbed.ErrorOf(limited.Within(3*limit).Lock(background)), context.DeadlineExceeded)
		waits = append(waits, testbed.LockLater(limited.Within(2*time.Minute)))
		f.Waiters(t, i+1)
	}
	<-time.After(3 * limit)
	f.Waiters(t, 3)
	testbed.Unlock(t, holds...)
	for _, done := range waits {
		require.NoError(t, testbed.Receive(t, done))
	}
}

// A cancelled wait ends at the server, and keeps the caller's transaction, while somebody's
// prepared statement has bytes for an argument. Then information_schema.PROCESSLIST is an error.
func TestCancelBesideBytes(t *testing.T) {
	t.Parallel()
	f := testbed.NewFixture(t, testbed.Own(t, servers.MySQL, "--max-connections=100"), testbed.MySQLSQL[0])
	ended := testbed.Go(func() error {
		const bytes = "DO GET_LOCK('bytes', 60), SLEEP(60), HEX(CONCAT(?, 'x'))"
		return testbed.ErrorOf(f.Admin.ExecContext(background, bytes, []byte("a\xff")))
	})
	eventually.True(t, "the statement runs", func() bool {
		return f.Total(t, "SELECT COUNT(IS_USED_LOCK('bytes'))") == 1
	})
	t.Cleanup(func() {
		database.Exec(t, f.Admin, fmt.Sprint("KILL ", f.Total(t, "SELECT IS_USED_LOCK('bytes')")))
		require.Error(t, testbed.Receive(t, ended))
	})
	err := f.Admin.QueryRowContext(background, "SELECT COUNT(INFO) FROM information_schema.PROCESSLIST").Scan(new(int))
	require.ErrorContains(t, err, "3854")

	lock := testbed.Lock(t, f.Locks.Mutex(f.Key("a")))
	tx := f.Guest(t)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	missed := testbed.Go(func() error { return f.Locks.Mutex(f.Key("a")).LockTx(ctx, tx) })
	eventually.True(t, "it waits", func() bool {
		return f.Total(t, "SELECT COUNT(*) FROM performance_schema.data_lock_waits") == 1
	})
	cancel()
	require.ErrorIs(t, testbed.Receive(t, missed), context.Canceled)
	require.NoError(t, f.Exec(background, tx, "SELECT 1"))
	require.NoError(t, tx.Rollback())
	testbed.Unlock(t, lock)
}

// An answer that comes behind the end of the wait, while an interrupt gets none, is a grant of
// seconds ago: its lease may be over.
func TestOldGrant(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		proxy := testbed.Proxy(t, e)
		deaf, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = deaf.Close() })
		var silent atomic.Bool
		_, locks := onPool(t, f, proxy.Addr(), func(config *pgx.ConnConfig) {
			dial := config.DialFunc
			config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				if silent.Load() {
					address = deaf.Addr().String()
				}
				return dial(ctx, network, address)
			}
		})
		m := locks.Mutex(f.Key("a"))
		require.NoError(t, testbed.Cycle(background, m))

		silent.Store(true)
		proxy.Delay(200 * time.Millisecond)
		require.ErrorIs(t, testbed.ErrorOf(m.Within(50*time.Millisecond).TryLock(background)), txlock.ErrNotAcquired)
		silent.Store(false)
		proxy.Delay(0)
		require.NoError(t, testbed.Cycle(background, m))
	})
}

// Who waits for himself is told by the log, while he waits.
func TestOwnWaitIsLogged(t *testing.T) {
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) {
		log := &testbed.Logbook{}
		f := testbed.NewSizedFixture(t, e, testbed.MySQLOpened(), 4, "", log.Option())
		m := f.Locks.Mutex(f.Key("outer"))
		outer := testbed.Lock(t, m)
		ctx, cancel := context.WithCancel(background)
		ended := testbed.Go(func() error {
			_, err := m.Lock(ctx) // and not with the context of the other
			return err
		})
		record := log.One(t, "WARN", "another call of this Locker holds")
		require.Contains(t, record["lock"], f.Key("outer"))
		cancel()
		require.ErrorContains(t, testbed.Receive(t, ended), "has not its context")
		testbed.Unlock(t, outer)
	})
}

// The error of a deadlock says who waited for whom.
func TestDeadlockSaysWho(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		a, b := f.Key("first"), f.Key("second")
		other := testbed.Lock(t, f.Locks.Mutex(b))
		var failed, unlocked error
		require.NoError(t, f.Locks.Mutex(a).Do(background, func(ctx context.Context, tx pgx.Tx) error {
			// So that the other is the victim, which keeps what it had.
			require.NoError(t, f.Exec(ctx, tx, "SET LOCAL deadlock_timeout = '1h'"))
			over := make(chan struct{})
			go func() {
				defer close(over)
				_, failed = f.Locks.Mutex(a).Lock(other.Context())
				unlocked = other.Unlock(background)
			}()
			f.Waiters(t, 1)
			inner, err := f.Locks.Mutex(b).Lock(ctx)
			testbed.Receive(t, over)
			require.NoError(t, err)
			return inner.Unlock(ctx)
		}))
		require.NoError(t, unlocked)
		require.ErrorIs(t, failed, txlock.ErrDeadlock)
		require.ErrorContains(t, failed, "blocked by process")
	})
}

// Within bounds the wait for all keys of an Exec together. PostgreSQL bounds that for each.
func TestExecOfSeveralKeysIsBounded(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		const limit = 4 * time.Second
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		keys := []string{f.Key("a"), f.Key("b")} // in the order of the queue
		if testbed.SlotOf(keys[0], 65536) > testbed.SlotOf(keys[1], 65536) {
			keys[0], keys[1] = keys[1], keys[0]
		}
		first, second := testbed.Lock(t, f.Locks.Mutex(keys[0])), testbed.Lock(t, f.Locks.Mutex(keys[1]))
		begun := time.Now()
		done := testbed.Go(func() error {
			_, err := f.Locks.Mutex(keys...).Within(limit).Exec(background, txlock.Statement{SQL: "SELECT 1"})
			return err
		})
		f.Waiters(t, 1)
		<-time.After(limit*3/4 - time.Since(begun)) // a wait for the second key begins late
		testbed.Unlock(t, first)
		require.ErrorIs(t, testbed.Receive(t, done), context.DeadlineExceeded)
		require.Less(t, time.Since(begun), limit*3/2)
		testbed.Unlock(t, second)
	})
}

// A long lock_timeout of the session's keeps no wait from beginning again, so that its snapshot
// goes.
func TestLongLimitOnWaits(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		held := testbed.Lock(t, f.Locks.Mutex(f.Key("k")))
		waits := f.AnotherBy(t, f.DSNFor(f.Label, "", url.Values{"lock_timeout": {"1h"}}), 2,
			txlock.WithLease(2*time.Second))
		done := testbed.LockLater(waits.Mutex(f.Key("k")))
		f.Waiters(t, 1)
		since := func() int {
			return f.Total(t, "SELECT coalesce(max(extract(epoch from xact_start) * 1000)::bigint, 0) "+
				"FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "+
				"split_part(application_name, '#', 1) = '"+f.Label+"'")
		}
		first := since()
		eventually.Every(t, "the wait begins again", testbed.PollEvery, func() bool { return since() > first })
		testbed.Unlock(t, held)
		require.NoError(t, testbed.Receive(t, done))
	})
}

// The caller's limit on the wait of a LockTx is longer than that of the session, which holds where
// the caller has none.
func TestLimitOnWaitsOfLockTx(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL[:1], func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		held := testbed.Lock(t, f.Locks.Mutex(f.Key("k")))
		impatient := f.DSNFor(f.Label, "", url.Values{"innodb_lock_wait_timeout": {"1"}})
		tx := f.Begin(t, impatient, sql.LevelReadCommitted)
		m := f.Locks.Mutex(f.Key("k"))
		require.ErrorIs(t, m.LockTx(background, tx), txlock.ErrNotAcquired)
		done := testbed.Go(func() error { return m.Within(2*time.Minute).LockTx(background, tx) })
		f.Waiters(t, 1)
		select {
		case err := <-done:
			require.NoError(t, err, "it ends before its time")
		case <-time.After(3 * time.Second): // nothing must happen
		}
		testbed.Unlock(t, held)
		require.NoError(t, testbed.Receive(t, done))
		require.NoError(t, f.End(background, tx, false))
	})
}

// A leader whose work has ended does not lead again because its release is not confirmed.
func TestSilentResignation(t *testing.T) {
	testbed.EachOpened(t, silentResignation[pgx.Tx], silentResignation[*sql.Tx])
}

func silentResignation[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, proxy := testbed.Proxied(t, e, c, 4)
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	done, terms := errors.New("done"), 0
	require.ErrorIs(t, f.Locks.Election(f.Key("e"), "me").Lead(ctx, func(context.Context, int64) error {
		if terms++; terms == 1 {
			t.Cleanup(proxy.Hold())
		}
		return done
	}), done)
	require.Equal(t, 1, terms)
}
