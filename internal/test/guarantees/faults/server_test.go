package faults

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
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
		working, killed, done := make(chan error, 1), make(chan struct{}), make(chan error, 1)
		go func() {
			done <- f.Locks.Mutex(f.Key("work")).Do(background, func(ctx context.Context, tx Tx) error {
				working <- f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)")
				select {
				case <-ctx.Done():
				case <-killed:
				}
				return nil
			})
		}()
		require.NoError(t, testbed.Receive(t, working))

		require.NoError(t, e.Kill())
		if !e.Postgres && c.Name == testbed.MySQLSQL[0].Name { // mysql.New notices by the next statement, the COMMIT
			close(killed)
		}
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
	require.Less(t, time.Since(start), 20*time.Second)
	record := log.One(t, "WARN", "lost a lock")
	require.Contains(t, record["lock"], f.Key("held"))
	require.Contains(t, record["error"], "no answer came in time")
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrNotHeld)
	require.NoError(t, e.Continue())
	next, err := f.Locks.Mutex(f.Key("held")).Within(time.Minute).Lock(background)
	require.NoError(t, err)
	require.NoError(t, next.Unlock(background))
}
