package txlock_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/eventually"
	"github.com/txlock/txlock/internal/servers"
)

// mortal is an engine of the test's own, whose server it may kill. Servers that are given by
// address are not killed, so where one is given for the other tests there is none of its kind here.
func mortal(t *testing.T, kind servers.Kind) *engine {
	t.Helper()
	server, err := servers.Start(background, kind, servers.Options{})
	require.NoError(t, err)
	return owned(t, server)
}

// owned is the engine of a server that ends with the test.
func owned(t *testing.T, server *servers.Server) *engine {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	e, err := newEngine(server)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.admin.Close() })
	return e
}

// back waits until the administrator's pool has got rid of its dead connections.
func (e *engine) back(t *testing.T) {
	t.Helper()
	eventually.Every(t, "the server answers", 5*time.Millisecond, func() bool { return e.admin.Ping() == nil })
}

func TestServerKilled(t *testing.T) {
	for _, e := range engines {
		if strings.HasPrefix(e.Origin, "given") {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			if e.postgres {
				for _, c := range postgresPgx {
					t.Run(c.name, func(t *testing.T) { serverKilled(t, mortal(t, e.Kind), c) })
				}
				t.Run(postgresSQL[0].name, func(t *testing.T) { serverKilled(t, mortal(t, e.Kind), postgresSQL[0]) })
				return
			}
			for _, c := range mysqlSQL {
				t.Run(c.name, func(t *testing.T) { serverKilled(t, mortal(t, e.Kind), c) })
			}
		})
	}
}

// A server that is killed, and comes again: what is held is lost and said to be so at once, waiters
// are told, nothing of the work is there, tokens go on increasing, and the same Locker works again.
func serverKilled[Tx any](t *testing.T, e *engine, c client[Tx]) {
	// With the default lease a heartbeat would tell of the loss almost as soon as the end of the
	// connection does.
	f := newSizedFixture(t, e, c, poolSize, "", txlock.WithFencing(), txlock.WithLease(time.Hour))
	require.NoError(t, f.locks.Install(background))
	table := f.makeTable(t, "id int primary key")
	last := int64(0)
	for round := range 2 {
		require.NoError(t, f.locks.Mutex(f.key("warm")).Do(background, func(context.Context, Tx) error { return nil }))
		lock, err := f.locks.Mutex(f.key("held")).Lock(background)
		require.NoError(t, err)
		require.Greater(t, lock.Token(), last, "round %d", round)
		last = lock.Token()
		waits := make(chan error, 1)
		go func() {
			_, err := f.locks.Mutex(f.key("held")).Lock(background)
			waits <- err
		}()
		f.waiters(t, 1)
		done, _ := f.startWork(f.key("work"), table)

		require.NoError(t, e.Kill())
		receive(t, lock.Context().Done())
		require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
		require.ErrorIs(t, receive(t, done), txlock.ErrLost)
		require.Error(t, receive(t, waits))
		require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
		_, err = f.locks.Mutex(f.key("held")).TryLock(background)
		require.Error(t, err)
		require.NotErrorIs(t, err, txlock.ErrNotAcquired, "nobody holds it")

		require.NoError(t, e.Restart(background))
		lock, err = f.locks.Mutex(f.key("held")).Lock(background)
		require.NoError(t, err, "at once, whatever the pool still has")
		require.Greater(t, runOf(lock.Token()), runOf(last), "round %d", round)
		last = lock.Token()
		require.NoError(t, lock.Unlock(background))
		e.back(t)
		require.Zero(t, f.total(t, "SELECT COUNT(*) FROM "+table))
	}
}

func TestUnlockBounded(t *testing.T) {
	for _, e := range engines {
		if strings.HasPrefix(e.Origin, "given") {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			if e.postgres {
				unlockBounded(t, mortal(t, e.Kind), pgxOpened())
				return
			}
			unlockBounded(t, mortal(t, e.Kind), mysqlOpened())
		})
	}
}

// A release that the server does not confirm returns in time, with an error, and the lock is free
// once the server is there again.
func unlockBounded[Tx any](t *testing.T, e *engine, c client[Tx]) {
	log := &logbook{}
	// No heartbeat is sent in the first minutes of such a lease: Unlock would wait for the answer
	// to that, and not for its own.
	f := newParallelFixture(t, e, c, 4, "", log.option(), txlock.WithLease(time.Hour))
	lock, err := f.locks.Mutex(f.key("held")).Lock(background)
	require.NoError(t, err)
	require.NoError(t, e.Pause())
	start := time.Now()
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	require.Less(t, time.Since(start), 8*time.Second)
	require.Contains(t, log.one(t, "WARN", "closed a connection")["lock"], f.key("held"))
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrNotHeld)
	require.NoError(t, e.Continue())
	next, err := f.locks.Mutex(f.key("held")).Within(5 * time.Second).Lock(background)
	require.NoError(t, err)
	require.NoError(t, next.Unlock(background))
}

func TestFailover(t *testing.T) {
	for _, e := range engines {
		if !e.postgres || strings.HasPrefix(e.Origin, "given") {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Run("postgres.Open", func(t *testing.T) { failover(t, e.Kind, pgxOpened()) })
			t.Run("sql.DB", func(t *testing.T) { failover(t, e.Kind, postgresSQL[0]) })
		})
	}
}

// The primary dies, its synchronous standby is promoted: the same Locker goes on there, and tokens
// go on increasing.
func failover[Tx any](t *testing.T, kind servers.Kind, c client[Tx]) {
	primary, standby, err := servers.StartPair(background, kind, true)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, primary.Stop()); require.NoError(t, standby.Stop()) })
	first, err := newEngine(primary)
	require.NoError(t, err)
	t.Cleanup(func() { _ = first.admin.Close() })
	second, err := newEngine(standby)
	require.NoError(t, err)
	t.Cleanup(func() { _ = second.admin.Close() })

	// One address for both, as a program has it that is to survive a failover.
	hosts := first.address() + "," + second.address()
	dsn := strings.Replace(first.dsn("failover", "", url.Values{"target_session_attrs": {"read-write"}}),
		first.address(), hosts, 1)
	driver, pool := c.connect(t, dsn, 4)
	t.Cleanup(pool.close)
	locks := txlock.New(driver, txlock.WithFencing(), txlock.WithSlots(16))
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	require.NoError(t, locks.Install(background))
	first.admitted(t, "CREATE TABLE done (id int primary key)")
	work := func(id int) func(context.Context, Tx) error {
		return func(ctx context.Context, tx Tx) error {
			return c.exec(ctx, tx, fmt.Sprintf("INSERT INTO done VALUES (%d)", id))
		}
	}
	require.NoError(t, locks.Mutex("a").Do(background, work(1)))
	var last int64
	for range 100 { // more than the sequence writes ahead
		lock, err := locks.Mutex("a").Lock(background)
		require.NoError(t, err)
		require.Greater(t, lock.Token(), last)
		last = lock.Token()
		require.NoError(t, lock.Unlock(background))
	}
	lock, err := locks.Mutex("a").Lock(background)
	require.NoError(t, err)

	require.NoError(t, primary.Kill())
	<-lock.Context().Done()
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	require.NoError(t, standby.Promote(background))
	next, err := locks.Mutex("a").Lock(background)
	require.NoError(t, err)
	require.Greater(t, runOf(next.Token()), runOf(lock.Token()))
	require.NoError(t, next.Unlock(background))
	require.NoError(t, locks.Mutex("a").Do(background, work(2)))
	var n int
	require.NoError(t, second.admin.QueryRow("SELECT COUNT(*) FROM done").Scan(&n))
	require.Equal(t, 2, n, "what was acknowledged is there")
}
