package engines

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/wire"
)

func eachPostgresAndPgBouncer(t *testing.T, test func(*testing.T, *testbed.Engine)) {
	t.Helper()
	eachPostgres(t, test)
	t.Run("PgBouncer", func(t *testing.T) {
		t.Parallel()
		test(t, testbed.PgBouncer(t))
	})
}

// shortLease is long enough for a machine that stalls, and short enough to see renewals: one comes
// every two leases.
const shortLease = 4 * time.Second

// A lock that is held for long is renewed. Nothing of it changes, but for the number of its
// transaction.
func TestHeldLocksAreRenewed(t *testing.T) {
	eachPostgresAndPgBouncer(t, func(t *testing.T, e *testbed.Engine) {
		clientsOf(t, e, renewed[pgx.Tx], renewed[*sql.Tx])
	})
}

func renewed[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 8, "", txlock.WithLease(shortLease))
	many := []string{f.Key("r1"), f.Key("r2")}
	lock := testbed.Lock(t, f.Locks.Mutex(many...))
	before := f.Look(t, many[0])[0]
	require.NotNil(t, before.Holder)
	session := before.Holder.ID
	require.Empty(t, horizonOf(t, f, session).xmin)

	rival := testbed.NewSizedFixture(t, e, c, 8, "")
	got := testbed.Granted(t, rival.Locks.Mutex(many[1]))
	rival.Waiters(t, 1)
	var passed atomic.Bool
	trying, stop := context.WithCancel(background)
	tried := make(chan struct{})
	go func() { // tries without a pause, as a row that is free for a moment would be found
		defer close(tried)
		for trying.Err() == nil {
			if other, err := rival.Locks.Mutex(many[0]).TryLock(background); err == nil {
				passed.Store(true)
				_ = other.Unlock(background)
			}
		}
	}()

	transactions := map[string]bool{}
	eventually.Every(t, "three renewals", testbed.PollEvery, func() bool {
		h := horizonOf(t, f, session)
		transactions[h.xid] = true
		delete(transactions, "")
		return len(transactions) >= 4 && h.xmin == ""
	})
	stop()
	<-tried
	require.False(t, passed.Load(), "another session got in")
	require.Empty(t, got)
	require.NoError(t, lock.Context().Err())
	after := f.Look(t, many[0])[0]
	require.Equal(t, session, after.Holder.ID)
	require.Equal(t, before.Key, after.Key)
	require.InDelta(t, before.Holder.Since.UnixMilli(), after.Holder.Since.UnixMilli(), 150)
	require.Len(t, f.Look(t, many[1])[0].Waiters, 1)

	// Who looked before the renewals may still break the lock.
	require.NoError(t, f.Locks.Break(background, before))
	testbed.Receive(t, lock.Context().Done())
	require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
	next := testbed.Receive(t, got)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	require.ErrorIs(t, f.Locks.Break(background, before), txlock.ErrNotHeld)
	testbed.Unlock(t, next)
	f.Free(t, many...)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE "+
		"locktype = 'advisory' AND split_part(application_name, '#', 1) IN ('"+f.Label+"', '"+rival.Label+"')"))
}

// horizon is what a session keeps VACUUM from removing; empty: nothing.
type horizon struct{ xid, xmin string }

func horizonOf[Tx any](t *testing.T, f *testbed.Fixture[Tx], session string) (h horizon) {
	t.Helper()
	require.NoError(t, f.Admin.QueryRow("SELECT COALESCE(backend_xid::text, ''), COALESCE(backend_xmin::text, '') "+
		"FROM pg_stat_activity WHERE pid = $1", session).Scan(&h.xid, &h.xmin))
	return h
}

// The lease goes on in the next transaction, also where settings are those of a transaction.
func TestRenewedLeaseIsKept(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) { renewedLease(t, e, testbed.PgxOnPool("")) })
}

func renewedLease[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, proxy := testbed.Proxied(t, e, c, 4, txlock.WithLease(shortLease))
	lock := testbed.Lock(t, f.Locks.Mutex(f.Key("silent")))
	session := f.Look(t, f.Key("silent"))[0].Holder.ID
	before := horizonOf(t, f, session).xid
	eventually.Every(t, "a renewal", testbed.PollEvery, func() bool {
		xid := horizonOf(t, f, session).xid
		return xid != "" && xid != before
	})
	require.NoError(t, lock.Context().Err())
	rival := testbed.NewSizedFixture(t, e, c, 4, "")
	granted := rival.Waits(t, f.Key("silent"))
	release := sync.OnceFunc(proxy.Hold()) // the server hears nothing, not even that the owner gives up
	t.Cleanup(release)
	testbed.Receive(t, granted)
	require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
	release()
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
}

// A cancel that hits a renewal in the new transaction is a loss, and the owner is told before the
// next one gets in: nobody does while the answer is on its way. Here the renewal waits until a
// change of the table is done, which gets in when the old transaction ends.
func TestCancelledRenewalIsALoss(t *testing.T) {
	failedRenewal(t, func(t *testing.T, f *testbed.Fixture[pgx.Tx], table string, proxy *wire.Proxy) (moved string) {
		tx := database.Begin(t, f.Admin, "LOCK TABLE "+table+" IN EXCLUSIVE MODE")
		ofOwner := " FROM pg_stat_activity WHERE split_part(application_name, '#', 1) = '" + f.Label + "' AND "
		eventually.Every(t, "a renewal waits", testbed.PollEvery, func() bool {
			return f.Total(t, "SELECT COUNT(*)"+ofOwner+"wait_event_type = 'Lock'") > 0
		})
		release := proxy.Hold()
		defer release()
		require.Equal(t, 1, f.Total(t, "SELECT COUNT(pg_cancel_backend(pid))"+ofOwner+"wait_event_type = 'Lock'"))
		eventually.Every(t, "it is cancelled", testbed.PollEvery, func() bool {
			return f.Total(t, "SELECT COUNT(*)"+ofOwner+"state = 'idle in transaction (aborted)'") > 0
		})
		require.NoError(t, tx.Rollback())
		testbed.Misses(t, f.Another(t, 2, txlock.WithTable(table)).Mutex("a"))
		return table
	})
}

// A renewal that fails is a loss. Its session keeps the queue lock until its owner is told: here a
// change of the table gets in when the transaction ends. The queue locks are those of the table's
// number, which stays.
func TestFailedRenewalIsALoss(t *testing.T) {
	failedRenewal(t, func(t *testing.T, f *testbed.Fixture[pgx.Tx], table string, _ *wire.Proxy) (moved string) {
		f.AsAdmin(t, "ALTER TABLE "+table+" RENAME TO "+table+"_moved") // waits for the holder's transaction
		return table + "_moved"
	})
}

// failedRenewal has another session lock what a renewal that spoil makes fail has lost. Nothing of
// the renewal stays in the server's session, which a pooler gives to its next client.
func failedRenewal(t *testing.T, spoil func(_ *testing.T, _ *testbed.Fixture[pgx.Tx], table string, _ *wire.Proxy) (
	moved string),
) {
	eachPostgresAndPgBouncer(t, func(t *testing.T, e *testbed.Engine) {
		f, table := testbed.NewInstalled(t, e, testbed.PgxOpened(), txlock.WithSlots(64))
		proxy := testbed.Proxy(t, e)
		lock := testbed.Lock(t, f.AnotherBy(t, f.DSNFor(f.Label, proxy.Addr(), nil), 2, txlock.WithTable(table),
			txlock.WithLease(shortLease)).Mutex("a"))
		moved := spoil(t, f, table, proxy)
		next := testbed.Lock(t, f.Another(t, 2, txlock.WithTable(moved)).Mutex("a"))
		require.Error(t, lock.Context().Err(), "the owner is told first")
		require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
		require.ErrorContains(t, context.Cause(lock.Context()), "renewal")
		testbed.Unlock(t, next)
		require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
		if moved != table {
			f.AsAdmin(t, "ALTER TABLE "+moved+" RENAME TO "+table)
		}
		f.Free(t, "a")
		require.Zero(t, f.Total(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND "+
			"classid = '"+table+"'::regclass"))
	})
}

// A renewal that is broken off before anything of it was sent leaves a connection that is closed
// with its release. That one asks the server all the same: the session may have ended before. And
// the server's session ends as well, behind a pooler too: it may have what outlives a transaction.
func TestBrokenOffRenewal(t *testing.T) {
	eachPostgresAndPgBouncer(t, func(t *testing.T, e *testbed.Engine) {
		f, table := testbed.NewInstalled(t, e, testbed.PgxOpened(), txlock.WithSlots(64))
		driver, p := f.Connect(t, f.DSNFor(f.Label, "", nil), 1)
		defer p.Close()
		slot := fmt.Sprint(testbed.SlotOf("a", 64))
		request := dialects.Request{
			Table: table, Slots: 64, Column: "slot", Values: []dialects.Value{{Text: slot}}, Ours: true,
			Lease: shortLease,
		}
		ended, cancel := context.WithCancel(background)
		cancel()
		for _, killed := range []bool{false, true} {
			session, _, err := driver.Begin(background, request)
			require.NoError(t, err)
			eventually.Every(t, "a renewal is due", testbed.PollEvery, func() bool {
				if err := session.Ping(ended); strings.Contains(err.Error(), "renewal") {
					return true
				}
				require.NoError(t, session.Ping(background))
				return false
			})
			pid := f.Total(t, "SELECT pid FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE "+
				"locktype = 'transactionid' AND split_part(application_name, '#', 1) = '"+f.Label+"'")
			if killed {
				f.KillSessions(t)
			}
			err = session.End(background, time.Now().Add(time.Minute), false)
			require.Equal(t, killed, errors.Is(err, txlock.ErrLost), "%v", err)
			eventually.Every(t, "the server's session has ended", testbed.PollEvery, func() bool {
				return f.Total(t, fmt.Sprint("SELECT count(*) FROM pg_stat_activity WHERE pid = ", pid)) == 0
			})
			f.Free(t, "a")
		}
	})
}

// Cancels hit renewals at every point. Whatever becomes of a lock, no session goes back to its pool
// with what it has kept for itself.
func TestCancelledRenewalsLeaveNothing(t *testing.T) {
	eachPostgres(t, func(t *testing.T, given *testbed.Engine) {
		const sessions, each = 8, 250 // keys, so that each statement takes its time
		e := testbed.Own(t, given.Kind, "-c", "logging_collector=on")
		f := testbed.NewSizedFixture(t, e, testbed.PgxOpened(), sessions+2, "", txlock.WithLease(shortLease))
		var locks []*txlock.Lock
		var keys []string
		for i := range sessions {
			var some []string
			for j := range each {
				some = append(some, f.Key(fmt.Sprint(i, " ", j)))
			}
			lock := testbed.Lock(t, f.Locks.Mutex(some...))
			locks, keys = append(locks, lock), append(keys, some[0])
		}
		of := " FROM pg_stat_activity WHERE split_part(application_name, '#', 1) = '" + f.Label + "'"
		hits := 0
		eventually.True(t, "cancels hit", func() bool {
			for range 100 {
				f.Total(t, "SELECT count(pg_cancel_backend(pid))"+of) // an idle session takes no notice
			}
			hits = strings.Count(logOf(t, e), "canceling statement due to user request")
			gone := !slices.ContainsFunc(locks, func(lock *txlock.Lock) bool { return lock.Context().Err() == nil })
			return hits >= sessions/2 || hits > 0 && gone // then nothing is left to be renewed
		})
		lost := 0
		for _, lock := range locks {
			if err := lock.Unlock(background); err != nil {
				require.ErrorIs(t, err, txlock.ErrLost)
				lost++
			}
		}
		t.Logf("%d cancels hit a statement, %d of %d locks were lost", hits, lost, sessions)
		f.Free(t, keys...)
		left := "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND " +
			"split_part(application_name, '#', 1) = '" + f.Label + "'"
		require.Zero(t, f.Total(t, left))
	})
}
