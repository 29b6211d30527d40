package guarantees

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/wire"
)

// KilledConnection shows that a connection killed in the middle is an error, from every verb.
func KilledConnection[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key")
	m := f.Locks.Mutex(f.Key("killed"))

	// Work that notices nothing.
	err := m.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		f.KillSession(t, tx)
		f.Transactions(t, 0)
		return nil
	})
	require.ErrorIs(t, err, txlock.ErrLost)
	if !e.Pooled { // a pooler's last words might come behind a COMMIT
		require.NotErrorIs(t, err, txlock.ErrUnknown, "the session had ended before COMMIT was sent")
	}
	// Work that notices, and returns its error.
	require.Error(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		f.KillSession(t, tx)
		return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (2)")
	}))
	// Work that notices, and swallows it.
	require.ErrorIs(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		f.KillSession(t, tx)
		_ = f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (3)")
		_ = f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (3)")
		return nil
	}), txlock.ErrLost)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))

	// A caller's transaction.
	tx := f.Guest(t)
	f.KillSession(t, tx)
	require.ErrorIs(t, m.LockTx(background, tx), txlock.ErrLost)
	_ = f.End(background, tx, false)

	// A nested Do, and the Do around it.
	require.ErrorIs(t, m.Do(background, func(ctx context.Context, _ Tx) error {
		require.ErrorIs(t, m.Do(ctx, func(_ context.Context, tx Tx) error {
			f.KillSession(t, tx)
			return nil
		}), txlock.ErrLost)
		require.ErrorIs(t, context.Cause(ctx), txlock.ErrLost)
		return nil
	}), txlock.ErrLost)

	// A Lock is told so by its context, and by its Unlock.
	one := testbed.NewSizedFixture(t, e, c, 1, "")
	lock := testbed.Lock(t, one.Locks.Mutex(f.Key("killed")))
	nested := testbed.LockIn(t, lock.Context(), one.Locks.Mutex(f.Key("nested")))
	one.KillSessions(t)
	testbed.Receive(t, lock.Context().Done())
	require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
	next := testbed.Lock(t, m)
	require.ErrorIs(t, nested.Unlock(background), txlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	f.Taken(t, f.Key("killed"))
	testbed.Unlock(t, next)
}

// CutConnection shows that a connection cut by the network is an error, and bounded in time.
func CutConnection[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, proxy := testbed.Proxied(t, e, c, testbed.PoolSize)
	m := f.Locks.Mutex(f.Key("cut"))
	table := f.MakeTable(t, "id int primary key")

	lock := testbed.Lock(t, m)
	proxy.Cut()
	start := time.Now()
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrNotHeld)

	err := m.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		proxy.Cut()
		return nil
	})
	require.ErrorIs(t, err, txlock.ErrLost)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))

	// A waiter whose connection breaks gets an error and not the lock.
	holder := testbed.NewFixture(t, e, c)
	held := testbed.Lock(t, holder.Locks.Mutex(f.Key("cut")))
	failed := testbed.Go(func() error { _, err := m.Lock(background); return err })
	f.Waiters(t, 1)
	proxy.Cut()
	require.Error(t, <-failed)
	testbed.Unlock(t, held)
	require.Less(t, time.Since(start), 30*time.Second) // MySQL waits for 50 s by default

	// And everything works again.
	eventually.True(t, "the lock is free again", func() bool {
		lock, err := m.Lock(background)
		return err == nil && lock.Unlock(background) == nil
	})
}

// RolledBack shows that a session learns of the end of its transaction from the next heartbeat,
// though its connection is as it was: a proxy, or a server that restarts and keeps its connections,
// has ended it.
func RolledBack[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	behindOnesBack := map[string]func(*wire.Proxy){"by a proxy": func(p *wire.Proxy) { p.RollBack(wire.MySQL) }}
	if e.Postgres {
		behindOnesBack["by a proxy"] = func(p *wire.Proxy) { p.RollBack(wire.PostgreSQL) }
	} else {
		behindOnesBack["by a restart of Aurora"] = func(p *wire.Proxy) {
			p.RollBackWith(1105, "The last transaction was aborted due to Zero Downtime Restart. Please retry.")
		}
	}
	for by, rollBack := range behindOnesBack {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			t.Run("and a heartbeat tells", func(t *testing.T) { t.Parallel(); heartbeatTells(t, e, c, rollBack) })
			t.Run("and a nested call tells", func(t *testing.T) { t.Parallel(); nestedCallTells(t, e, c, rollBack) })
		})
	}
}

func heartbeatTells[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], rollBack func(*wire.Proxy)) {
	f, proxy := leased(t, e, c, 6*time.Second)
	leads := candidacy(t, f.Locks.Election(f.Key("election"), "me"))
	first := testbed.Receive(t, leads.terms)
	held := map[string]*txlock.Lock{}
	for kind, m := range map[string]*txlock.Mutex[Tx]{
		"Lock": f.Locks.Mutex(f.Key("alone")), "Shared": f.Locks.Mutex(f.Key("shared")).Shared(),
		"a permit": f.Locks.Semaphore(f.Key("api"), 1),
	} {
		held[kind] = testbed.TryLock(t, m)
	}
	rollBack(proxy)
	testbed.Receive(t, first.ctx.Done())
	require.ErrorIs(t, context.Cause(first.ctx), txlock.ErrLost)
	for kind, lock := range held {
		testbed.Receive(t, lock.Context().Done())
		require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost, kind)
		require.ErrorContains(t, context.Cause(lock.Context()), "heartbeat", kind)
		require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost, kind)
	}
	second := testbed.Receive(t, leads.terms)
	require.Greater(t, second.number, first.number)
	second.end <- nil
	require.NoError(t, testbed.Receive(t, leads.over))
	f.Free(t, f.Key("alone"), f.Key("shared"))
}

// nestedCallTells: a nested lock would begin another transaction, with which heartbeats would be
// content.
func nestedCallTells[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], rollBack func(*wire.Proxy)) {
	const noHeartbeat = time.Hour
	f, proxy := leased(t, e, c, noHeartbeat)
	lock := testbed.TryLock(t, f.Locks.Mutex(f.Key("outer")))
	rollBack(proxy)
	require.ErrorIs(t, testbed.ErrorOf(f.Locks.Mutex(f.Key("inner")).Lock(lock.Context())), txlock.ErrLost)
	require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	f.Free(t, f.Key("outer"), f.Key("inner"))
}

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
