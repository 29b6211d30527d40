package engines

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// manyLocks are held at the same time by one Locker.
type manyLocks struct {
	locks    int
	lease    time.Duration
	hold     time.Duration
	atMost   time.Duration // the age of a transaction: two periods of renewal
	lookEach time.Duration
}

// All sessions of a Locker have their heartbeats at once. Each renews what it holds in time, and
// waits for nobody. With the usual lease, VACUUM is two minutes behind at most.
func TestManyLocksAreRenewed(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		many := manyLocks{100, 6 * time.Second, 40 * time.Second, 24 * time.Second, time.Second}
		if tier.Full() && e.Kind == servers.Postgres18 { // with the lease that users have
			many = manyLocks{1000, 30 * time.Second, 10 * time.Minute, 2 * time.Minute, 5 * time.Second}
		}
		manyRenewed(t, e.Kind, many)
	})
}

func manyRenewed(t *testing.T, kind servers.Kind, many manyLocks) {
	server, err := servers.Start(background, kind, servers.Options{
		Connections: many.locks + 100, Settings: []string{"-c", "logging_collector=on"},
	})
	require.NoError(t, err)
	e := testbed.Owned(t, server)
	f := testbed.NewSizedFixture(t, e, testbed.PgxOpened(), many.locks+20, "", txlock.WithLease(many.lease))
	locks := make([]*txlock.Lock, many.locks)
	var begin errgroup.Group
	begin.SetLimit(20)
	for i := range locks {
		key := f.Key(fmt.Sprint(i))
		begin.Go(func() (err error) {
			locks[i], err = f.Locks.Mutex(key).Lock(background)
			return err
		})
	}
	require.NoError(t, begin.Wait())

	logged := len(logOf(t, e)) // the proof of Install is an error by design
	before, err := server.CPU()
	require.NoError(t, err)
	renewals, oldest := holdMany(t, f, locks, many)
	after, err := server.CPU()
	require.NoError(t, err)
	t.Logf("%d locks for %v: at least %d renewals, the oldest transaction was %v old, %v of the server's time",
		many.locks, many.hold, renewals, oldest.Round(time.Millisecond), (after - before).Round(time.Millisecond))
	for _, lock := range locks {
		testbed.Unlock(t, lock)
	}
	require.Zero(t, f.Total(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"))
	for line := range strings.Lines(logOf(t, e)[logged:]) {
		require.NotContains(t, line, "ERROR", "the server's log")
		require.NotContains(t, line, "WARNING", "the server's log")
	}
}

// logOf is the log of a server of the test's own, in which all is that was logged before.
func logOf(t *testing.T, e *testbed.Engine) (text string) {
	t.Helper()
	mark := "logged " + rand.Text()
	e.AsAdmin(t, "DO $$ BEGIN RAISE LOG '"+mark+"'; END $$")
	eventually.True(t, "the log has the mark", func() bool {
		text = column(t, e, "SELECT pg_read_file(pg_current_logfile())")[0]
		return strings.Contains(text, mark)
	})
	return text
}

// holdMany looks after the locks while they are held, and locks further keys.
func holdMany(t *testing.T, f *testbed.Fixture[pgx.Tx], locks []*txlock.Lock, many manyLocks) (
	renewals int, oldest time.Duration,
) {
	of := " FROM pg_stat_activity WHERE split_part(application_name, '#', 1) = '" + f.Label + "'"
	transactions := map[string]bool{}
	var further []string
	for i := range 40 {
		further = append(further, f.Key(fmt.Sprint("further", i)))
	}
	for until := time.Now().Add(many.hold); time.Now().Before(until); <-time.After(many.lookEach) {
		for _, lock := range locks {
			require.NoError(t, context.Cause(lock.Context()))
		}
		var age float64
		require.NoError(t, f.Admin.QueryRow("SELECT max(extract(epoch from clock_timestamp() - xact_start))"+of).
			Scan(&age))
		oldest = max(oldest, time.Duration(age*float64(time.Second)))
		require.LessOrEqual(t, oldest, many.atMost, "the oldest transaction")
		for _, xid := range column(t, f.Engine, "SELECT backend_xid::text"+of+" AND backend_xid IS NOT NULL") {
			transactions[xid] = true
		}
		waiting, cancel := context.WithTimeout(background, 10*time.Second)
		lock, err := f.Locks.Mutex(further...).Lock(waiting)
		require.NoError(t, err, "a lock of further keys waits for nobody")
		testbed.Unlock(t, lock)
		lock = testbed.TryLockIn(t, waiting, f.Locks.Mutex(further...))
		testbed.Unlock(t, lock)
		_, err = f.Locks.Mutex(append(further, f.Key("0"))...).TryLock(waiting)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		cancel()
	}
	return len(transactions) - len(locks), oldest
}

// Cancels hit renewals at every point. Whatever becomes of a lock, no session goes back to its pool
// with what it has kept for itself.
func TestCancelledRenewalsLeaveNothing(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, given *testbed.Engine) {
		cancelledRenewals(t, testbed.Own(t, given.Kind, "-c", "logging_collector=on"), testbed.PgxOpened())
	})
}

func cancelledRenewals[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const sessions, each = 8, 250 // keys, so that each statement takes its time
	f := testbed.NewSizedFixture(t, e, c, sessions+2, "", txlock.WithLease(shortLease))
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
}
