package faults

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/eventually"
	"github.com/txlock/txlock/internal/guarantees/testbed"
	"github.com/txlock/txlock/internal/servers"
)

// back waits until the administrator's pool has no dead connection left.
func back(t *testing.T, e *testbed.Engine) {
	t.Helper()
	eventually.Every(t, "the server answers", 5*time.Millisecond, func() bool { return e.Admin.Ping() == nil })
}

func TestServerKilled(t *testing.T) {
	testbed.Lines(
		func(e *testbed.Engine, c testbed.Client[pgx.Tx]) { onMortal(t, e, c, serverKilled) },
		func(e *testbed.Engine, c testbed.Client[*sql.Tx]) { onMortal(t, e, c, serverKilled) })
}

// onMortal runs a test on a server of its own, which it may kill.
func onMortal[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx],
	test func(*testing.T, *testbed.Engine, testbed.Client[Tx]),
) {
	if strings.HasPrefix(e.Origin, "given") {
		return // the tests may not kill it
	}
	t.Run(e.Name+" "+c.Name, func(t *testing.T) {
		t.Parallel()
		test(t, testbed.Mortal(t, e.Kind), c)
	})
}

// A server is killed and restarted. What was held is announced as lost at once, waiters get an
// error, nothing of the work is there, tokens go on increasing, and the same Locker works again.
func serverKilled[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	// With the default lease a heartbeat might tell of the loss, instead of the closed connection.
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", txlock.WithFencing(), txlock.WithLease(time.Hour))
	require.NoError(t, f.Locks.Install(background))
	table := f.MakeTable(t, "id int primary key")
	last := int64(0)
	for round := range 2 {
		require.NoError(t, f.Locks.Mutex(f.Key("warm")).Do(background, func(context.Context, Tx) error { return nil }))
		lock, err := f.Locks.Mutex(f.Key("held")).Lock(background)
		require.NoError(t, err)
		require.Greater(t, lock.Token(), last, "round %d", round)
		last = lock.Token()
		waits := make(chan error, 1)
		go func() {
			_, err := f.Locks.Mutex(f.Key("held")).Lock(background)
			waits <- err
		}()
		f.Waiters(t, 1)
		done, _ := f.StartWork(f.Key("work"), table)

		require.NoError(t, e.Kill())
		testbed.Receive(t, lock.Context().Done())
		require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
		require.ErrorIs(t, testbed.Receive(t, done), txlock.ErrLost)
		require.Error(t, testbed.Receive(t, waits))
		require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
		_, err = f.Locks.Mutex(f.Key("held")).TryLock(background)
		require.Error(t, err)
		require.NotErrorIs(t, err, txlock.ErrNotAcquired, "nobody holds it")

		require.NoError(t, e.Restart(background))
		lock, err = f.Locks.Mutex(f.Key("held")).Lock(background)
		require.NoError(t, err, "at once, whatever the pool still has")
		require.Greater(t, testbed.RunOf(lock.Token()), testbed.RunOf(last), "round %d", round)
		last = lock.Token()
		require.NoError(t, lock.Unlock(background))
		back(t, e)
		require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
	}
}

func TestUnlockBounded(t *testing.T) {
	for _, e := range testbed.Engines {
		if strings.HasPrefix(e.Origin, "given") {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			if e.Postgres {
				unlockBounded(t, testbed.Mortal(t, e.Kind), testbed.PgxOpened())
				return
			}
			unlockBounded(t, testbed.Mortal(t, e.Kind), testbed.MySQLOpened())
		})
	}
}

// A release that the server does not confirm returns an error in time, and the lock is free once
// the server answers again.
func unlockBounded[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	log := &testbed.Logbook{}
	// No heartbeat is sent in the first minutes of such a lease: Unlock would wait for its answer
	// first.
	f := testbed.NewSizedFixture(t, e, c, 4, "", log.Option(), txlock.WithLease(time.Hour))
	lock, err := f.Locks.Mutex(f.Key("held")).Lock(background)
	require.NoError(t, err)
	require.NoError(t, e.Pause())
	start := time.Now()
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	require.Less(t, time.Since(start), 8*time.Second)
	require.Contains(t, log.One(t, "WARN", "closed a connection")["lock"], f.Key("held"))
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrNotHeld)
	require.NoError(t, e.Continue())
	next, err := f.Locks.Mutex(f.Key("held")).Within(5 * time.Second).Lock(background)
	require.NoError(t, err)
	require.NoError(t, next.Unlock(background))
}

func TestFailover(t *testing.T) {
	for _, e := range testbed.Engines {
		if !e.Postgres || strings.HasPrefix(e.Origin, "given") {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			t.Run("postgres.Open", func(t *testing.T) {
				t.Parallel()
				failover(t, e.Kind, testbed.PgxOpened())
			})
			t.Run("sql.DB", func(t *testing.T) {
				t.Parallel()
				failover(t, e.Kind, testbed.PostgresSQL[0])
			})
		})
	}
}

// The primary dies and its synchronous standby is promoted. The same Locker goes on there, and
// tokens go on increasing.
func failover[Tx any](t *testing.T, kind servers.Kind, c testbed.Client[Tx]) {
	pair, err := servers.StartPair(background, kind, true)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pair.Stop()) })
	primary, standby := pair.Primary(), pair.Standby()
	first, err := testbed.NewEngine(primary)
	require.NoError(t, err)
	t.Cleanup(func() { _ = first.Admin.Close() })
	second, err := testbed.NewEngine(standby)
	require.NoError(t, err)
	t.Cleanup(func() { _ = second.Admin.Close() })

	// One address for both, as in a program that survives a failover.
	hosts := first.Address() + "," + second.Address()
	dsn := strings.Replace(first.DSNFor("failover", "", url.Values{"target_session_attrs": {"read-write"}}),
		first.Address(), hosts, 1)
	driver, pool := c.Connect(t, dsn, 4)
	t.Cleanup(pool.Close)
	locks := txlock.New(driver, txlock.WithFencing(), txlock.WithSlots(16))
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	require.NoError(t, locks.Install(background))
	first.AsAdmin(t, "CREATE TABLE done (id int primary key)")
	work := func(id int) func(context.Context, Tx) error {
		return func(ctx context.Context, tx Tx) error {
			return c.Exec(ctx, tx, fmt.Sprintf("INSERT INTO done VALUES (%d)", id))
		}
	}
	require.NoError(t, locks.Mutex("a").Do(background, work(1)))
	var last int64
	for range 100 { // more tokens than the sequence logs ahead
		lock, err := locks.Mutex("a").Lock(background)
		require.NoError(t, err)
		require.Greater(t, lock.Token(), last)
		last = lock.Token()
		require.NoError(t, lock.Unlock(background))
	}
	lock, err := locks.Mutex("a").Lock(background)
	require.NoError(t, err)
	term := leadOnce(t, locks)
	standbyDriver, standbyPool := c.Connect(t, second.DSNFor("standby", "", nil), 2)
	t.Cleanup(standbyPool.Close)
	_, err = txlock.New(standbyDriver).Election("failover", "onlooker").Leader(background)
	require.ErrorContains(t, err, "this server is a standby")
	require.NotErrorIs(t, err, txlock.ErrNoLeader)

	require.NoError(t, primary.Kill())
	<-lock.Context().Done()
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	require.NoError(t, pair.Promote(background))
	next, err := locks.Mutex("a").Lock(background)
	require.NoError(t, err)
	require.Greater(t, testbed.RunOf(next.Token()), testbed.RunOf(lock.Token()))
	require.NoError(t, next.Unlock(background))
	require.Greater(t, testbed.RunOf(leadOnce(t, locks)), testbed.RunOf(term))
	require.NoError(t, locks.Mutex("a").Do(background, work(2)))
	var n int
	require.NoError(t, second.Admin.QueryRow("SELECT COUNT(*) FROM done").Scan(&n))
	require.Equal(t, 2, n, "what was acknowledged is there")
}

// leadOnce leads for a moment.
func leadOnce[Tx any](t *testing.T, locks *txlock.Locker[Tx]) (term int64) {
	t.Helper()
	require.NoError(t, locks.Election("failover", "me").Lead(background, func(_ context.Context, number int64) error {
		term = number
		return nil
	}))
	return term
}
