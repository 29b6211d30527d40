package engines

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/locktable"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/wire"
)

// eachPostgresClient runs a test with every client of PostgreSQL, side by side.
func eachPostgresClient(t *testing.T, onPgx func(*testing.T, *testbed.Engine, testbed.Client[pgx.Tx]),
	onSQL func(*testing.T, *testbed.Engine, testbed.Client[*sql.Tx]),
) {
	t.Helper()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) { clientsOf(t, e, onPgx, onSQL) })
	t.Run("PgBouncer", func(t *testing.T) {
		t.Parallel()
		clientsOf(t, testbed.PgBouncer(t), onPgx, onSQL)
	})
}

func clientsOf(t *testing.T, e *testbed.Engine, onPgx func(*testing.T, *testbed.Engine, testbed.Client[pgx.Tx]),
	onSQL func(*testing.T, *testbed.Engine, testbed.Client[*sql.Tx]),
) {
	t.Helper()
	for _, c := range testbed.PostgresPgx {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			onPgx(t, e, c)
		})
	}
	for _, c := range testbed.PostgresSQL {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			onSQL(t, e, c)
		})
	}
}

// shortLease is long enough for a machine that stalls, and short enough to see renewals: one comes
// every two leases.
const shortLease = 2 * time.Second

// A lock that is held for long is renewed. Nothing of it changes, but for the number of its
// transaction.
func TestHeldLocksAreRenewed(t *testing.T) {
	t.Parallel()
	eachPostgresClient(t, renewed[pgx.Tx], renewed[*sql.Tx])
}

func renewed[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 8, "", txlock.WithLease(shortLease))
	many := []string{f.Key("r1"), f.Key("r2")}
	lock, err := f.Locks.Mutex(many...).Lock(background)
	require.NoError(t, err)
	before := f.Look(t, many[0])[0]
	require.NotNil(t, before.Holder)
	session := before.Holder.ID
	require.Empty(t, horizonOf(t, f, session).xmin)

	rival := testbed.NewSizedFixture(t, e, c, 8, "")
	got := make(chan *txlock.Lock, 1)
	go func() {
		lock, err := rival.Locks.Mutex(many[1]).Lock(background)
		if err == nil {
			got <- lock
		}
	}()
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
	require.NoError(t, next.Unlock(background))
	f.Free(t, many...)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE "+
		"locktype = 'advisory' AND split_part(application_name, '#', 1) IN ('"+f.Label+"', '"+rival.Label+"')"))
}

// A renewal that was broken off before anything of it was sent leaves a connection that is closed
// with its release. That one asks the server all the same: the session may have ended before. And
// the server's session ends as well, behind a pooler too: it may have what outlives a transaction.
func TestBrokenOffRenewal(t *testing.T) {
	t.Parallel()
	brokenOff := func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		driver, p := f.Connect(t, f.DSNFor(f.Label, "", nil), 2)
		defer p.Close()
		found, err := locktable.Find(background, driver, e.Table())
		require.NoError(t, err)
		slot := strconv.Itoa(int(testbed.SlotOf(f.Key("a"), found.Slots)))
		ended, cancel := context.WithCancel(background)
		cancel()
		for _, killed := range []bool{false, true} {
			session, _, err := driver.Begin(background, dialects.Request{
				Table: found.Name, Slots: found.Slots, Column: "slot", Values: []dialects.Value{{Text: slot}},
				Ours: true, Lease: shortLease,
			})
			require.NoError(t, err)
			heard := time.Now()
			eventually.Every(t, "a renewal is due", testbed.PollEvery, func() bool {
				if err := session.Ping(ended); strings.Contains(err.Error(), "renewal") {
					return true
				}
				if time.Since(heard) > shortLease/3 {
					require.NoError(t, session.Ping(background))
					heard = time.Now()
				}
				return false
			})
			var pid int
			require.NoError(t, f.Admin.QueryRow("SELECT pid FROM pg_stat_activity WHERE xact_start IS NOT NULL AND "+
				"split_part(application_name, '#', 1) = $1", f.Label).Scan(&pid))
			if killed {
				f.KillSessions(t)
			}
			err = session.End(background, time.Now().Add(time.Minute), false)
			require.Equal(t, killed, errors.Is(err, txlock.ErrLost), "%v", err)
			eventually.Every(t, "the server's session has ended", testbed.PollEvery, func() bool {
				return f.Total(t, "SELECT COUNT(*) FROM pg_stat_activity WHERE pid = "+strconv.Itoa(pid)) == 0
			})
			f.Free(t, f.Key("a"))
		}
	}
	eachPostgres(t, brokenOff)
	t.Run("PgBouncer", func(t *testing.T) {
		t.Parallel()
		brokenOff(t, testbed.PgBouncer(t))
	})
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
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) { renewedLease(t, e, testbed.PgxOnPool("")) })
}

func renewedLease[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	proxy, err := wire.Listen(e.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	f := testbed.NewSizedFixture(t, e, c, 4, proxy.Addr(), txlock.WithLease(shortLease))
	lock, err := f.Locks.Mutex(f.Key("silent")).Lock(background)
	require.NoError(t, err)
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
// next one gets in. Here it waits until a change of the table is done, which gets in when the old
// transaction ends.
func TestCancelledRenewalIsALoss(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) { cancelledRenewal(t, e, testbed.PgxOpened()) })
}

func cancelledRenewal[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewFixtureWithTable(t, e, c, txlock.WithLease(shortLease), txlock.WithSlots(64))
	require.NoError(t, f.Locks.Install(background))
	lock, err := f.Locks.Mutex("a").Lock(background)
	require.NoError(t, err)
	tx, err := f.Admin.Begin()
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.Exec("LOCK TABLE " + table + " IN EXCLUSIVE MODE")
	require.NoError(t, err)
	eventually.Every(t, "a renewal is cancelled", testbed.PollEvery, func() bool {
		return f.Total(t, "SELECT COUNT(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE "+
			"split_part(application_name, '#', 1) = '"+f.Label+"' AND wait_event_type = 'Lock'") > 0
	})
	require.NoError(t, tx.Rollback())
	lostFirst(t, f, lock, table)
	f.Free(t, "a")
}

// lostFirst has another session lock what a failed renewal has lost.
func lostFirst[Tx any](t *testing.T, f *testbed.Fixture[Tx], lock *txlock.Lock, table string) {
	t.Helper()
	driver, pool := f.Client.Connect(t, f.DSNFor(f.Label, "", nil), 2)
	defer pool.Close()
	next, err := txlock.New(driver, txlock.WithTable(table)).Mutex("a").Lock(background)
	require.NoError(t, err)
	require.Error(t, lock.Context().Err(), "the owner is told first")
	require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
	require.ErrorContains(t, context.Cause(lock.Context()), "renewal")
	require.NoError(t, next.Unlock(background))
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
}

// A renewal that fails is a loss. Its session keeps the queue lock until its owner is told: here a
// change of the table gets in when the transaction ends.
func TestFailedRenewalIsALoss(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) { failedRenewal(t, e, testbed.PgxOpened()) })
}

func failedRenewal[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewFixtureWithTable(t, e, c, txlock.WithLease(shortLease), txlock.WithSlots(64))
	require.NoError(t, f.Locks.Install(background))
	lock, err := f.Locks.Mutex("a").Lock(background)
	require.NoError(t, err)
	f.AsAdmin(t, "ALTER TABLE "+table+" RENAME TO "+table+"_moved") // waits for the holder's transaction

	lostFirst(t, f, lock, table+"_moved") // the same queue locks, by the table's number
	f.AsAdmin(t, "ALTER TABLE "+table+"_moved RENAME TO "+table)
	f.Free(t, "a")
}
