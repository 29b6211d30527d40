package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
	if e.Given() {
		return // the tests may not kill it
	}
	t.Run(e.Name+" "+c.Name, func(t *testing.T) {
		t.Parallel()
		test(t, testbed.Own(t, e.Kind), c)
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
		lock := testbed.Lock(t, f.Locks.Mutex(f.Key("held")))
		require.Greater(t, lock.Token(), last, "round %d", round)
		last = lock.Token()
		waits := testbed.Go(func() error { _, err := f.Locks.Mutex(f.Key("held")).Lock(background); return err })
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
		_, err := f.Locks.Mutex(f.Key("held")).TryLock(background)
		require.Error(t, err)
		require.NotErrorIs(t, err, txlock.ErrNotAcquired, "nobody holds it")

		require.NoError(t, e.Restart(background))
		lock, err = f.Locks.Mutex(f.Key("held")).Lock(background)
		require.NoError(t, err, "at once, whatever the pool still has")
		require.Greater(t, testbed.RunOf(lock.Token()), testbed.RunOf(last), "round %d", round)
		last = lock.Token()
		testbed.Unlock(t, lock)
		back(t, e)
		require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
	}
}

func TestUnlockBounded(t *testing.T) { eachOpened(t, unlockBounded[pgx.Tx], unlockBounded[*sql.Tx]) }

// A release that the server does not confirm returns an error in time, and the lock is free once
// the server answers again.
func unlockBounded[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	if e.Given() {
		return
	}
	e = testbed.Own(t, e.Kind)
	log := &testbed.Logbook{}
	// No heartbeat is sent in the first minutes of such a lease: Unlock would wait for its answer
	// first.
	f := testbed.NewSizedFixture(t, e, c, 4, "", log.Option(), txlock.WithLease(time.Hour))
	lock := testbed.Lock(t, f.Locks.Mutex(f.Key("held")))
	require.NoError(t, e.Pause())
	start := time.Now()
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	require.Less(t, time.Since(start), 20*time.Second)
	record := log.One(t, "WARN", "lost a lock")
	require.Contains(t, record["lock"], f.Key("held"))
	require.Contains(t, record["error"], "no answer came in time")
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrNotHeld)
	require.NoError(t, e.Continue())
	next := testbed.Lock(t, f.Locks.Mutex(f.Key("held")).Within(time.Minute))
	testbed.Unlock(t, next)
}

func TestSlowCancel(t *testing.T) { testbed.EachOpened(t, slowCancel[pgx.Tx], slowCancel[*sql.Tx]) }

// A cancel takes seconds to arrive, as on a machine that stalls, or through a pooler that must
// connect first. A nested wait waits for it: the transaction around it has more to lose.
func slowCancel[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	if e.Given() {
		return
	}
	e = testbed.Own(t, e.Kind)
	f := testbed.NewSizedFixture(t, e, c, 4, "")
	table := f.MakeTable(t, "id int primary key")
	holder := testbed.Lock(t, f.Locks.Mutex(f.Key("held")))
	ctx, cancel := context.WithCancel(background)
	done := testbed.Go(func() error {
		return f.Locks.Mutex(f.Key("outer")).Do(background, func(work context.Context, tx Tx) error {
			inner, stop := context.WithCancel(work)
			defer stop()
			defer context.AfterFunc(ctx, stop)()
			if _, err := f.Locks.Mutex(f.Key("held")).Lock(inner); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("the nested lock: %w", err)
			}
			return f.Exec(work, tx, "INSERT INTO "+table+" VALUES (1)")
		})
	})
	f.Waiters(t, 1)
	require.NoError(t, e.Pause())
	cancel()
	time.Sleep(5 * time.Second / 2) // longer than a wait with nothing to lose would be interrupted
	require.NoError(t, e.Continue())
	require.NoError(t, testbed.Receive(t, done))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
	testbed.Unlock(t, holder)
}

func TestLeaderInOutage(t *testing.T) {
	testbed.Lines(
		func(e *testbed.Engine, c testbed.Client[pgx.Tx]) { onMortal(t, e, c, leaderInOutage) },
		func(e *testbed.Engine, c testbed.Client[*sql.Tx]) { onMortal(t, e, c, leaderInOutage) })
}

// A server is killed and restarted. The leader is told, and it and the others wait until the server
// is back: then one of them leads, with a higher term.
func leaderInOutage[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", txlock.WithLease(time.Hour))
	require.NoError(t, f.Locks.Install(background))
	type term struct {
		number int64
		ctx    context.Context
	}
	terms := make(chan term, 100)
	ctx, cancel := context.WithCancel(background)
	over := make(chan error, 2)
	for _, name := range []string{"one", "another"} {
		go func() {
			over <- f.Locks.Election(f.Key("outage"), name).Lead(ctx, func(ctx context.Context, number int64) error {
				terms <- term{number, ctx}
				<-ctx.Done()
				return nil
			})
		}()
	}
	first := testbed.Receive(t, terms)
	require.NoError(t, e.Kill())
	testbed.Receive(t, first.ctx.Done())
	require.ErrorIs(t, context.Cause(first.ctx), txlock.ErrLost)
	_, err := f.Locks.Election(f.Key("outage"), "onlooker").Leader(background)
	require.Error(t, err)
	require.NotErrorIs(t, err, txlock.ErrNoLeader, "nobody knows")
	require.Empty(t, over, "they wait for the server")
	require.NoError(t, e.Restart(background))
	next := testbed.Receive(t, terms)
	require.Greater(t, testbed.RunOf(next.number), testbed.RunOf(first.number))
	back(t, e)
	require.NoError(t, next.ctx.Err())
	cancel()
	for range 2 {
		if err := testbed.Receive(t, over); err != nil { // nil: of the one that led
			require.ErrorIs(t, err, context.Canceled)
		}
	}
}

// A server that only reads, as a replica does, cannot say that nobody leads: its locks are not the
// primary's.
func TestLeaderOnReplica(t *testing.T) {
	ours := testbed.EnginesWhere(func(e *testbed.Engine) bool { return !e.Postgres && !e.Given() })
	testbed.Each(t, ours, func(t *testing.T, e *testbed.Engine) {
		own := testbed.Own(t, e.Kind)
		for _, c := range testbed.MySQLSQL {
			f := testbed.NewFixture(t, own, c)
			election := f.Locks.Election(f.Key("replica"), "me")
			require.NoError(t, election.Lead(background, func(ctx context.Context, _ int64) error {
				own.AsAdmin(t, "SET GLOBAL read_only = 1")
				leader, err := election.Leader(ctx)
				require.NoError(t, err)
				require.Equal(t, "me", leader.Identity)
				return nil
			}))
			_, err := election.Leader(background)
			require.ErrorContains(t, err, "only reads", c.Name)
			require.NotErrorIs(t, err, txlock.ErrNoLeader)
			own.AsAdmin(t, "SET GLOBAL read_only = 0")
			require.ErrorIs(t, testbed.ErrorOf(election.Leader(background)), txlock.ErrNoLeader)
		}
	})
}
