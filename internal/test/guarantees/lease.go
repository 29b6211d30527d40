package guarantees

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

// endOf says when ctx ended. It takes the time at once, not when the waiting test gets a processor.
func endOf(ctx context.Context) <-chan time.Time {
	ended := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { ended <- time.Now() })
	return ended
}

// LossAnnounced kills sessions of which nobody uses the connection, and of work between two
// statements.
func LossAnnounced[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	proxy := testbed.Proxy(t, e) // it knows when the connections are closed
	// no heartbeat is due for minutes: the closed connection must tell
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, proxy.Addr(), txlock.WithLease(time.Hour))
	table := f.MakeTable(t, "id int primary key")
	lock := testbed.Lock(t, f.Locks.Mutex(f.Key("lost")))
	nested := testbed.LockIn(t, lock.Context(), f.Locks.Mutex(f.Key("nested")))
	done, ended := f.StartWork(f.Key("work"), table)
	require.NoError(t, lock.Context().Err())
	idle := testbed.Lock(t, f.Locks.Mutex(f.Key("idle")))
	require.NoError(t, idle.Unlock(background)) // the killed connection stays in the pool

	f.KillSessions(t)
	testbed.Receive(t, lock.Context().Done())
	testbed.Receive(t, nested.Context().Done())
	testbed.Receive(t, ended)
	require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
	require.ErrorIs(t, context.Cause(nested.Context()), txlock.ErrLost)
	require.ErrorIs(t, <-done, txlock.ErrLost)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))

	// Everything works again, with the connections left in the pool.
	left := map[bool]int{true: 1}[e.Pooled && !e.Pgpool] // PgBouncer keeps an idle client
	eventually.Every(t, "the connections are gone", testbed.PollEvery, func() bool { return proxy.Open() == left })
	next := testbed.Lock(t, f.Locks.Mutex(f.Key("lost")))
	require.ErrorIs(t, nested.Unlock(background), txlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	f.Taken(t, f.Key("lost"))
	testbed.Unlock(t, next)
	f.Transactions(t, 0) // clients may be told before the server has rolled back
	f.Free(t, f.Key("lost"), f.Key("nested"), f.Key("work"))
}

// NoFalseAlarm shows that there is no false alarm, and Unlock is none.
func NoFalseAlarm[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	for range 50 {
		lock := testbed.Lock(t, f.Locks.Mutex(f.Key("a")))
		nested := testbed.LockIn(t, lock.Context(), f.Locks.Mutex(f.Key("b")))
		testbed.Unlock(t, lock)
		require.NoError(t, nested.Context().Err(), "the session is still held")
		testbed.Unlock(t, nested)
		for _, l := range []*txlock.Lock{lock, nested} {
			require.Equal(t, context.Canceled, context.Cause(l.Context()))
		}
		require.NoError(t, f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, _ Tx) error {
			return context.Cause(ctx)
		}))
	}
}

// LeaseKept shows all that must wait for a lease. A holder that must not lose its lock has a lease
// of some seconds: on a machine that stalls for a second, it would be a silent holder.
func LeaseKept[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	for name, scenario := range map[string]func(*testing.T, *testbed.Engine, testbed.Client[Tx]){
		"a healthy Lock outlives its lease":                         healthyOutlivesLease[Tx],
		"nested calls that keep failing lose no Lock":               nestedCallsFail[Tx],
		"a silent network is announced before the server lets go":   silentNetwork[Tx],
		"a hiccup shorter than the lease is no loss":                hiccup[Tx],
		"work that is silent for longer than the lease is lost":     silentWork[Tx],
		"work learns of a network that drops every packet":          silentNetworkInWork[Tx],
		"a nested wait learns of a network that drops every packet": silentNetworkInNestedWait[Tx],
		"a cancelled statement ends no session":                     cancelledHolder[Tx],
		"Unlock comes behind a heartbeat that is under way":         unlockDuringHeartbeat[Tx],
		"a Do is bounded though a nested one goes on":               nestedDoGoesOn[Tx],
		"a nested Do is bounded though a call in it goes on":        nestedLockGoesOn[Tx],
		"Close is bounded in time":                                  closeIsBounded[Tx],
		"LockTx leaves it to the caller's settings":                 leaseOfLockTx[Tx],
		"statements of the work keep its Do alive":                  busyWork[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(t, e, c)
		})
	}
}

// leased is a fixture with a lease, behind a proxy.
func leased[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], lease time.Duration) (
	*testbed.Fixture[Tx], *wire.Proxy,
) {
	t.Helper()
	return testbed.Proxied(t, e, c, 4, txlock.WithLease(lease))
}

func healthyOutlivesLease[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const lease = 3 * time.Second
	f, proxy := leased(t, e, c, lease)
	lock := testbed.Lock(t, f.Locks.Mutex(f.Key("healthy")))
	before := proxy.Bursts()
	testbed.Keeps(t, lock, lease*5/2)
	// half of those that are due, since timers may be late
	require.Greater(t, proxy.Bursts(), before+6, "heartbeats")
	f.Taken(t, f.Key("healthy"))
	testbed.Unlock(t, lock)
}

// nestedCallsFail has nested calls use the connection nearly all the time. Heartbeats and, on
// PostgreSQL, renewals get their turns.
func nestedCallsFail[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const lease = 3 * time.Second
	f, _ := leased(t, e, c, lease)
	other := testbed.NewSizedFixture(t, e, c, 2, "")
	taken := testbed.TryLock(t, other.Locks.Mutex(f.Key("taken")))
	lock := testbed.TryLock(t, f.Locks.Mutex(f.Key("held")))
	numbers := map[int]bool{} // of the transaction that holds the lock
	note := func() {
		if e.Postgres {
			numbers[f.Total(t, "SELECT COALESCE(MAX(backend_xid::text::bigint), 0) FROM pg_stat_activity WHERE "+
				"application_name ~ '"+f.Key("held")+"'")] = true
			delete(numbers, 0)
		}
	}
	note()
	nested := f.Locks.Mutex(f.Key("taken")).Within(lease / 6)
	renewed := func() bool { return !e.Postgres || len(numbers) > 1 } // due after two leases
	for begun := time.Now(); time.Since(begun) < lease*3 || !renewed() && time.Since(begun) < lease*9; {
		_, err := nested.Lock(lock.Context())
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.NotErrorIs(t, err, txlock.ErrLost)
		note()
	}
	require.True(t, renewed())

	// One that outlasts the lease costs the lock nothing, and it is still held for who asks.
	_, err := f.Locks.Mutex(f.Key("taken")).Within(lease * 4 / 3).Lock(lock.Context())
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.NotErrorIs(t, err, txlock.ErrLost)
	testbed.Unlock(t, testbed.TryLockIn(t, lock.Context(), f.Locks.Mutex(f.Key("held"))))
	testbed.Keeps(t, lock, lease)
	f.Taken(t, f.Key("held"))
	testbed.Unlock(t, lock, taken)
}

func hiccup[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const lease = 9 * time.Second
	f, proxy := leased(t, e, c, lease)
	lock := testbed.Lock(t, f.Locks.Mutex(f.Key("hiccup")))
	release := proxy.Hold()
	testbed.Keeps(t, lock, lease/2)
	release()
	before := proxy.Bursts()
	testbed.Keeps(t, lock, lease/2) // the lease since the last answer before the hiccup is over
	require.Greater(t, proxy.Bursts(), before, "heartbeats go on")
	f.Taken(t, f.Key("hiccup"))
	testbed.Unlock(t, lock)
}

func silentWork[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, _ := leased(t, e, c, time.Second)
	table := f.MakeTable(t, "id int primary key")
	start := time.Now()
	require.ErrorIs(t, f.Locks.Mutex(f.Key("work")).Do(background, func(ctx context.Context, tx Tx) error {
		start = time.Now()
		if err := f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"); err != nil {
			return err
		}
		testbed.Receive(t, ctx.Done())
		require.ErrorIs(t, context.Cause(ctx), txlock.ErrLost)
		return nil
	}), txlock.ErrLost)
	require.Greater(t, time.Since(start), 900*time.Millisecond)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
	f.Transactions(t, 0)
	f.Free(t, f.Key("work"))
}

// cancelledHolder: cancelling the statement of an idle session, or its heartbeat, does not end the
// session.
func cancelledHolder[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const lease = 3 * time.Second
	f, _ := leased(t, e, c, lease)
	lock := testbed.Lock(t, f.Locks.Mutex(f.Key("cancelled")))
	for start := time.Now(); time.Since(start) < lease*5/6; { // later PostgreSQL renews it: a cancel of that is a loss
		f.CancelStatements(t)
	}
	testbed.Keeps(t, lock, lease)
	f.Taken(t, f.Key("cancelled"))
	// the last cancel may have hit the release, which then closes the connection
	if err := lock.Unlock(background); err != nil {
		require.ErrorIs(t, err, txlock.ErrLost)
	}
	f.Transactions(t, 0)
	f.Free(t, f.Key("cancelled"))
}

func leaseOfLockTx[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const lease = time.Second
	f := testbed.NewSizedFixture(t, e, c, 2, "", txlock.WithLease(lease))
	read, set := "SELECT @@wait_timeout", "SET wait_timeout = 3"
	if f.Postgres {
		read = "SELECT current_setting('idle_in_transaction_session_timeout') || " +
			"current_setting('client_connection_check_interval')"
		set = "SET idle_in_transaction_session_timeout = '3s'"
	}
	f.Free(t, f.Key("guest")) // reads the number of slots: LockTx would wait a second for that at most
	tx := f.Begin(t, f.DSNFor(f.Label, "", nil), sql.LevelDefault)
	before := f.Read(t, tx, read)
	require.NoError(t, f.Locks.Mutex(f.Key("guest")).LockTx(background, tx))
	after := f.Read(t, tx, read)
	require.Equal(t, before, after)
	granted := f.Stranger(t, f.Key("guest"))
	start := time.Now()
	require.NoError(t, f.Exec(background, tx, set))
	// It is the caller's timer that ends it: the lease would be over sooner, the server's own limit
	// much later.
	require.Greater(t, testbed.Receive(t, granted).Sub(start), 2*lease)
	require.Error(t, f.End(background, tx, true), "what was lost cannot commit")
}

// busyWork goes on for longer than the lease in a nested Do, and after it, whether that succeeded
// or failed. A Do sends no heartbeats.
func busyWork[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const lease = 3 * time.Second
	for name, fails := range map[string]error{"success": nil, "error": errWork} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := leased(t, e, c, lease)
			table := f.MakeTable(t, "id int")
			m := f.Locks.Mutex(f.Key("busy"))
			statements := time.NewTicker(lease / 5)
			defer statements.Stop()
			work := func(ctx context.Context, tx Tx) (sent int) {
				for start := time.Now(); time.Since(start) < lease*3/2; <-statements.C {
					require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
					sent++
				}
				return sent
			}
			kept := 0
			require.NoError(t, m.Do(background, func(outer context.Context, tx Tx) error {
				require.Equal(t, fails, m.Do(outer, func(ctx context.Context, tx Tx) error {
					if sent := work(ctx, tx); fails == nil {
						kept = sent
					}
					return fails
				}))
				kept += work(outer, tx)
				return nil
			}))
			require.Equal(t, kept, f.Total(t, "SELECT COUNT(*) FROM "+table))
		})
	}
}
