package guarantees

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// Logged shows that the log tells of a loss, and is silent otherwise.
func Logged[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	log := &testbed.Logbook{}
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", log.Option())
	m := f.Locks.Mutex(f.Key("a"))
	lock := testbed.Lock(t, m)
	testbed.Misses(t, m)
	ctx, cancel := context.WithCancel(background)
	cancel()
	require.ErrorIs(t, testbed.ErrorOf(m.Lock(ctx)), context.Canceled)
	testbed.Unlock(t, lock)
	require.ErrorIs(t, m.Do(background, func(context.Context, Tx) error { return errWork }), errWork)
	require.NoError(t, f.Locks.Check(background))
	require.Empty(t, log.Records(t), "silent otherwise")

	lock = testbed.Lock(t, m)
	f.KillSessions(t)
	<-lock.Context().Done()
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	record := log.One(t, "WARN", "lost a lock")
	require.Contains(t, record["lock"], f.Key("a"))
	require.Contains(t, record["error"], "server closed the connection")

	end := "KILL CONNECTION_ID()"
	if e.Postgres {
		end = "SELECT pg_terminate_backend(pg_backend_pid())"
	}
	for what, work := range map[string]func(context.Context, Tx) error{
		"the statement that was killed is the error": func(ctx context.Context, tx Tx) error {
			return c.Exec(ctx, tx, end)
		},
		"the work goes on": func(ctx context.Context, tx Tx) error {
			_ = c.Exec(ctx, tx, end)
			return nil
		},
		"the work commits": func(ctx context.Context, tx Tx) error { return c.Exec(ctx, tx, "COMMIT") },
	} {
		log := &testbed.Logbook{}
		f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", log.Option())
		require.ErrorIs(t, f.Locks.Mutex(f.Key(what)).Do(background, work), txlock.ErrLost, what)
		require.Contains(t, log.One(t, "WARN", "lost a lock")["lock"], f.Key(what))
	}
}

// ForgottenLock shows that the log tells of a Lock that the program has lost sight of, and that it
// stays held. It does not tell of one that was unlocked, or released with its Do.
func ForgottenLock[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	log := &testbed.Logbook{}
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", log.Option())
	lock := func(ctx context.Context, key string) *txlock.Lock {
		lock := testbed.LockIn(t, ctx, f.Locks.Mutex(f.Key(key)))
		return lock
	}
	require.NoError(t, lock(background, "unlocked").Unlock(background))
	require.NoError(t, f.Locks.Mutex(f.Key("do")).Do(background, func(ctx context.Context, _ Tx) error {
		lock(ctx, "released")
		return nil
	}))
	lock(background, "forgotten")
	eventually.Every(t, "a warning", testbed.PollEvery, func() bool {
		runtime.GC()
		return len(log.Records(t)) > 0
	})
	require.Contains(t, log.One(t, "WARN", "forgotten")["lock"], f.Key("forgotten"))
	f.Taken(t, f.Key("forgotten"))
	f.Free(t, f.Key("unlocked"), f.Key("released"))
	require.NoError(t, f.Locks.Close())
}
